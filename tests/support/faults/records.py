"""The oracle's view of what arrived: one record per place in a stream, and what sinks are owed."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

Record = Mapping[str, Any]
Place = tuple[str, int]
"""A stream and a sequence in it."""
HEARTBEAT = "seb.bridge.heartbeat.v1"
RESET = "seb.bridge.store-reset.v1"


class Heard:
    """Every record once, and where it arrived."""

    def __init__(
        self, received: Mapping[str, Sequence[bytes]], committed: Sequence[bytes] = ()
    ) -> None:
        self.wrong: list[str] = []
        self.records: dict[Place, Record] = {}
        """Every record that is known, by its place."""
        self.arrivals: dict[str, list[Place]] = {}
        """By sink: the places of what arrived, in order, repetitions included."""
        self.streams: list[str] = []
        """The streams, in the order in which they began."""
        self._bodies: dict[bytes, Place] = {}
        for sink, bodies in received.items():
            places = [self._hear(body, sink) for body in bodies]
            self.arrivals[sink] = [place for place in places if place is not None]
        self._order_streams()
        for body in committed:
            self._hear(body, "the store")

    @property
    def repeated(self) -> int:
        """How many arrivals there were beyond the first of a record at a sink."""
        return sum(len(places) - len(set(places)) for places in self.arrivals.values())

    def _hear(self, body: bytes, where: str) -> Place | None:
        if body in self._bodies:
            return self._bodies[body]
        try:
            record = json.loads(body)
            place = (record["stream"], int(record["sequence"]))
        except (ValueError, KeyError, TypeError):
            self.wrong.append(f"{where}: this is no record: {body[:80]!r}")
            return None
        if place in self.records:
            self.wrong.append(f"{where}: record {place[1]} has other bytes than elsewhere")
        self.records.setdefault(place, record)
        self._bodies[body] = place
        return place

    def _order_streams(self) -> None:
        """By the sink that saw most of them: every sink sees them in the same order."""
        seen = [
            list(dict.fromkeys(stream for stream, _ in places)) for places in self.arrivals.values()
        ]
        self.streams = max(seen, key=len, default=[])


class OwedStreams:
    """What each sink is owed of each stream, and whether it got it in order."""

    def __init__(
        self,
        heard: Heard,
        dead: Sequence[Mapping[str, Any]],
        *,
        wants: Mapping[str, Callable[[Record], bool]],
        begins: Mapping[str, int],
        heartbeats: bool,
    ) -> None:
        self._heard = heard
        self._wants = wants
        self._begins = begins
        self._heartbeats = heartbeats
        self._known: dict[str, dict[int, Record]] = defaultdict(dict)
        for (stream, sequence), record in sorted(heard.records.items()):
            self._known[stream][sequence] = record
        self._dead = {(each["sink"], int(each["sequence"])) for each in dead}
        self.told_dead = {
            (stream, letter["sink"], int(letter["recordSequence"]))
            for stream, records in self._known.items()
            for letter in (each["data"].get("deadLetter") for each in records.values())
            if letter is not None
        }
        """Stream, sink and sequence of what dead-letter records told."""

    @property
    def last(self) -> str:
        """The stream that counts on at the end."""
        return self._heard.streams[-1] if self._heard.streams else ""

    def in_order(self) -> list[Record]:
        """Every record once, stream after stream."""
        return [record for stream in self._heard.streams for record in self._known[stream].values()]

    def by_event(self, stream: str) -> dict[str, list[Record]]:
        """The records of each event in a stream, in order."""
        found: dict[str, list[Record]] = defaultdict(list)
        for record in self._known[stream].values():
            if record["type"].startswith("seb.event."):
                found[record["data"]["event"]["eventId"]].append(record)
        return found

    def pending(self) -> dict[str, str]:
        """EventId and fingerprint of what the records of the last stream leave pending."""
        return {
            event_id: history[-1]["data"]["fingerprint"]
            for event_id, history in self.by_event(self.last).items()
            if history[-1]["data"]["transition"] != "ended"
        }

    @property
    def streams(self) -> list[str]:
        """The streams, in the order in which they began."""
        return self._heard.streams

    def wrong(self, *, resets: int) -> Iterator[str]:
        """What is wrong with order, holes, and lost stores."""
        for stream in self._known.keys() - set(self.streams):
            yield f"stream {stream}: none of its {len(self._known[stream])} records arrived"
        told = sum(each["type"] == RESET for each in self.in_order())
        if (told, len(self.streams) - 1) != (resets, resets) and self.streams:
            yield f"{resets} stores were lost, {told} told, and there are {len(self.streams)}"
        for stream in self.streams:
            yield from self._holes(stream)
            for sink, places in self._heard.arrivals.items():
                got = [sequence for each, sequence in places if each == stream]
                yield from self._wrong_order(sink, stream, got)
                yield from self._missing(sink, stream, set(got))
        for sink, places in self._heard.arrivals.items():
            order = [self.streams.index(stream) for stream, _ in places if stream in self.streams]
            if order != sorted(order):
                yield f"{sink}: an older stream goes on after a newer one"

    def _holes(self, stream: str) -> Iterator[str]:
        """Each number has a record, or had a heartbeat that a newer one replaced. A stream that
        follows one whose store was lost begins anywhere, and says so first.
        """
        known = self._known[stream]
        if self._heartbeats or not known:
            return
        first = min(known) if known[min(known)]["type"] == RESET else 1
        for sequence in sorted(set(range(first, max(known) + 1)) - known.keys()):
            yield f"lost: record {sequence} of stream {stream} is nowhere"

    def _wrong_order(self, sink: str, stream: str, got: Sequence[int]) -> Iterator[str]:
        """Record after record; a repetition may step back, and nothing steps over what is owed."""
        owed = self._owed(sink, stream)
        behind, place = 0, 0
        for sequence in got:
            if sequence <= behind:
                continue
            while place < len(owed) and owed[place] < sequence:
                if owed[place] > behind:
                    yield f"{sink}: record {sequence} came before {owed[place]}"
                place += 1
            behind = sequence

    def _missing(self, sink: str, stream: str, got: set[int]) -> Iterator[str]:
        owed = set(self._owed(sink, stream))
        if stream != self.last:  # what a lost store still had to deliver is kept with it
            owed = {each for each in owed if each <= max(got, default=0)}
        for sequence in sorted(owed - got):
            kind = self._known[stream][sequence]["type"]
            yield f"lost: record {sequence}, {kind}, never came to {sink}"

    def _owed(self, sink: str, stream: str) -> list[int]:
        """The sequences that a sink must have got of a stream, in order."""
        wants = self._wants.get(sink, _everything)
        return [
            sequence
            for sequence, record in self._known[stream].items()
            if sequence >= self._begins.get(sink, 1)
            and record["type"] != HEARTBEAT
            and wants(record)
            and (stream, sink, sequence) not in self.told_dead
            and (stream != self.last or (sink, sequence) not in self._dead)
        ]


def wrong_facts(streams: OwedStreams) -> Iterator[str]:
    """One id for one fact in every stream, and a story of each event without a hole."""
    ids: dict[str, object] = {}
    facts: dict[object, str] = {}
    for record in streams.in_order():
        fact = _fact(record)
        if ids.setdefault(record["id"], fact) != fact:
            yield f"id {record['id']} stands for two facts"
        if facts.setdefault(fact, record["id"]) != record["id"]:
            yield f"a fact has two ids: {facts[fact]} and {record['id']}"
    for stream in streams.streams:
        for event_id, history in streams.by_event(stream).items():
            revisions = [each["data"]["revision"] for each in history]
            if revisions != list(range(1, len(history) + 1)):
                yield f"the revisions of {event_id} are {revisions}"
            for before, after in pairwise(history):
                yield from _wrong_step(event_id, before["data"], after["data"])


def _fact(record: Record) -> object:
    data = record["data"]
    if not record["type"].startswith("seb.event."):
        return (record["stream"], record["sequence"])
    return (
        data["event"]["eventId"],
        data["transition"],
        data["revision"],
        data["fingerprint"],
        data.get("document", {}).get("incarnation") if data["revision"] > 1 else None,
    )


def _wrong_step(
    event_id: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[str]:
    kind, status = after["transition"], after["event"]["eventStatus"]
    same = (before["transition"], before["fingerprint"]) == (kind, after["fingerprint"])
    if same and kind != "updated":
        yield f"{event_id} is told twice to be {kind}"
    returns = before["transition"] == "ended"
    if kind in (("updated", "ended") if returns else ("scheduled",)):
        yield f"{event_id} is {kind} after it was {before['transition']}"
    if kind == "ended" and before["event"]["eventStatus"] == "Started" and status != "Completed":
        yield f"{event_id} had started, and ended {status}"


def _everything(_: Record) -> bool:
    return True
