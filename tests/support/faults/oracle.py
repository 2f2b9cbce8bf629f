"""The oracle of every fault case: what IMDS served for longer than one poll, and every record that
was committed, arrives at every sink at least once, with one id and the same bytes each time, in
order, or is listed as dead; and no POST is without a cause. It shares no code with the bridge.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.faults.posts import wrong_posts, wrong_receipts
from support.faults.records import Heard, OwedStreams, Record, wrong_facts
from support.imds.restless_imds import fingerprint
from support.process.bridge import run_seb

from bridge.simulator.approvals import Post
from bridge.simulator.simulator import Simulator

COMPLAINTS = 20
"""How many of the things that are wrong are said at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a case has seen by the time that everything should have arrived."""

    case: str
    received: Mapping[str, Sequence[bytes]]
    """The bodies of every arrival at every sink, by the sink's name, in order of arrival."""
    rounds: int = 1
    documents: Sequence[Mapping[str, Any]] = ()
    """The documents that the bridge read and committed for certain, in order. `Observations` of
    `restless_imds` knows them where processes are killed; `certain(simulator)` where none is."""
    standing: Mapping[str, Any] | None = None
    """The document that stood at the end, where it was read: the records must say the same."""
    outbox: Mapping[str, Any] = field(default_factory=lambda: {"sinks": [], "dead": []})
    """What `seb outbox list --json` says at the end: nothing to deliver, and what is dead."""
    committed: Sequence[bytes] = ()
    """Records that are known to be committed, whether they arrived anywhere or not."""
    wants: Mapping[str, Callable[[Record], bool]] = field(default_factory=dict)
    """By sink: whether a record is for it, where that is not every record."""
    begins: Mapping[str, int] = field(default_factory=dict)
    """By sink: the first sequence that is for it, where it was configured later."""
    heartbeats: bool = False
    """Whether there are heartbeats: each may be replaced by a newer one before it arrives."""
    resets: int = 0
    """How often the store was lost and begun anew, as told by as many store-reset records."""
    posts: Sequence[Post] = ()
    """Every POST of StartRequests that the stand-in IMDS got."""
    rules: Collection[str] = ()
    """Names of the owner's rules."""
    commands: Collection[str] = ()
    """The jti of every command that was good and may be obeyed."""
    people: Collection[str] = ()
    """Users who approved on the VM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was tried, in figures."""

    case: str
    rounds: int
    documents: int
    """Documents that were read for certain."""
    records: int
    """Different records that arrived."""
    repeated: int
    """Arrivals beyond the first of a record at a sink."""
    dead: int
    posts: int
    lost: int = 0
    more: str = ""

    @property
    def line(self) -> str:
        """The line that a person reads."""
        figures = {
            "rounds": self.rounds,
            "records": self.records,
            "repeated": self.repeated,
            "dead": self.dead,
            "lost": self.lost,
        }
        told = "  ".join(f"{name} {count}" for name, count in figures.items())
        posts = f"  POSTs {self.posts}" if self.posts else ""
        return f"faults: {self.case:<44}  {told}{posts}{self.more and f'  {self.more}'}"


def judge(evidence: Evidence, *, more: str = "") -> Figures:
    """The figures of a case that went well, with what `more` there is to say of it.

    Raises `AssertionError` with everything that is wrong.
    """
    heard = Heard(evidence.received, evidence.committed)
    wrong = list(_wrong(evidence, heard))
    if wrong:
        left_out = len(wrong) - COMPLAINTS
        told = [*wrong[:COMPLAINTS], *([f"… and {left_out} more"] if left_out > 0 else [])]
        raise AssertionError("\n  ".join([f"{evidence.case}:", *told]))
    return Figures(
        case=evidence.case,
        rounds=evidence.rounds,
        documents=len(evidence.documents),
        records=len(heard.records),
        repeated=heard.repeated,
        dead=len(evidence.outbox["dead"]),
        posts=len(evidence.posts),
        more=more,
    )


def _wrong(evidence: Evidence, heard: Heard) -> Iterator[str]:
    yield from heard.wrong
    streams = OwedStreams(
        heard,
        evidence.outbox["dead"],
        wants=evidence.wants,
        begins=evidence.begins,
        heartbeats=evidence.heartbeats,
    )
    yield from streams.wrong(resets=evidence.resets)
    yield from _wrong_outbox(evidence, streams)
    yield from wrong_facts(streams)
    yield from _missing_facts(evidence, heard)
    if evidence.standing is not None:
        yield from _wrong_end(evidence.standing, streams)
    receipts = [each for each in streams.in_order() if each["type"] == "seb.approval.v1"]
    yield from wrong_receipts(receipts)
    yield from wrong_posts(
        evidence.posts,
        receipts,
        rules=evidence.rules,
        commands=evidence.commands,
        people=evidence.people,
    )


def _wrong_outbox(evidence: Evidence, streams: OwedStreams) -> Iterator[str]:
    """At the end nothing is to be delivered, and what is dead says why."""
    for sink in evidence.outbox["sinks"]:
        if sink["sink"] in evidence.received and sink["backlog"]:
            yield f"{sink['sink']}: {sink['backlog']} records are still to be delivered"
    for dead in evidence.outbox["dead"]:
        what = f"{dead['sink']}: dead record {dead['sequence']}"
        if not dead["reason"]:
            yield f"{what} has no reason"
        quiet = dead["record_type"] in ("seb.bridge.dead-letter.v1", "seb.bridge.heartbeat.v1")
        if not quiet and (streams.last, dead["sink"], dead["sequence"]) not in streams.told_dead:
            yield f"{what} was told by no dead-letter record"


def _missing_facts(evidence: Evidence, heard: Heard) -> Iterator[str]:
    """Each state of an event that was read for certain has its record."""
    fields = {
        (each["data"]["event"]["eventId"], each["data"]["fingerprint"])
        for each in heard.records.values()
        if each["type"].startswith("seb.event.")
    }
    for place, document in enumerate(evidence.documents):
        for event in document["Events"]:
            fact = (event["EventId"], fingerprint(event))
            if fact not in fields:
                fields.add(fact)  # said once
                yield f"lost: {event['EventStatus']} of {fact[0]}, read in document {place}"


def _wrong_end(standing: Mapping[str, Any], streams: OwedStreams) -> Iterator[str]:
    """What the records of the last stream leave pending is what stood at the end."""
    stands = {event["EventId"]: fingerprint(event) for event in standing["Events"]}
    told = streams.pending()
    for event_id in stands.keys() | told.keys():
        if stands.get(event_id) != told.get(event_id):
            said, is_so = ("pending" if event_id in each else "over" for each in (told, stands))
            yield f"at the end {event_id} is {is_so}; the records say {said}, in another state"


def certain(simulator: Simulator, *, looks: int = 2) -> list[Mapping[str, Any]]:
    """The documents that a bridge which nobody ended read for certain: it asked again after each.

    Where a commit may fail, a document counts only after so many looks that one must have gone in.
    """
    return [document.json() for document in simulator.history if document.gets >= looks]


def outbox_of(home: Path, env: Mapping[str, str]) -> Mapping[str, Any]:
    """What `seb outbox list --json` says, with the variables of the bridge."""
    ended = run_seb("outbox", "list", "--json", home=home, env=env)
    assert ended.code == 0, ended.err
    answer: Mapping[str, Any] = json.loads(ended.out)
    return answer
