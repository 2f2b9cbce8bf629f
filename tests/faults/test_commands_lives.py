"""The lives of commands: sent, sent again, bent, over changes of the event, failures of IMDS,
restarts, a lost store and a clock that is set. Each that is good is accepted once and has one end;
no other one is, and nothing else is ever posted.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.commands.approving import Court, fails
from support.commands.story import Issued, Story
from support.commands.token_judge import Facts, reason_against
from support.documents.documents import entry
from support.faults.oracle import Figures

from bridge.events import bridge_records
from bridge.store.database import RESET_KEY
from bridge.store.recovery import StoreReset

Tell = Callable[[Figures], None]
MEMORY = Path("/dev/shm")
"""What is on disk is not the subject here."""
EVENTS = ("E-1", "E-2")
RATE = 30
FAILURES = ("http_500", "http_429", "refused", "http_400", "timeout", "lost")
"""Ends of a POST; of the last one only the answer is lost."""


class Lives(RuleBasedStateMachine):
    counts: ClassVar[Counter[str]] = Counter()

    @initialize()
    def begin(self) -> None:
        self.root = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.stores = 0
        self.court = Court(self.directory())
        self.story = Story()
        self.lost: int | None = None
        self.rate: list[float] = []
        self.wrong = 0.0

    def teardown(self) -> None:
        if hasattr(self, "court"):
            try:
                self.settle()
            finally:
                self.court.close()
                self.root.cleanup()

    def directory(self) -> Path:
        self.stores += 1
        return Path(self.root.name) / str(self.stores)

    # IMDS

    @rule(event=st.sampled_from(EVENTS), more=st.sampled_from([(), ("web_4",)]))
    def announce(self, event: str, more: tuple[str, ...]) -> None:
        """A new event, or one that is over returns."""
        events = self.court.imds.events_now
        if events.get(event, {}).get("EventStatus") == "Started":
            del events[event]
            self.look()
        events.setdefault(event, entry(event, resources=["web_3", *more]))
        self.look()

    @rule(event=st.sampled_from(EVENTS), change=st.sampled_from(["others", "start", "vanish"]))
    def change(self, event: str, change: str) -> None:
        if event in self.court.imds.events_now:
            match change:
                case "others":
                    other = f"web_{len(self.story.issued) + 10}"
                    self.court.change(event, Resources=["web_3", other])
                case "start":
                    self.court.change(event, EventStatus="Started", NotBefore="")
                case _:
                    self.court.vanish(event)

    @rule(after=st.sampled_from([1.0, 1.0, 3.0, 10.0]))
    def look(self, after: float = 1.0) -> None:
        self.court.look(after=after)
        self.story.check(self.court)

    # The control plane

    @property
    def now(self) -> int:
        """The right time, as the control plane has it."""
        return int(self.court.clock.now().timestamp() - self.wrong)

    @rule(
        data=st.data(),
        event=st.sampled_from(EVENTS),
        curve=st.booleans(),
        ahead=st.sampled_from([0, 0, 0, 5]),
        failures=st.lists(st.sampled_from(FAILURES), max_size=2),
        then=st.sampled_from(["nothing", "nothing", "others", "start", "vanish"]),
    )
    def issue(
        self,
        *,
        data: st.DataObject,
        event: str,
        curve: bool,
        ahead: int,
        failures: list[str],
        then: str,
    ) -> None:
        """Sign an approval of an event as it was told at some time, while IMDS is not well; and
        then the event changes.
        """
        self.announce(event=event, more=())
        imds = self.court.imds
        imds.failures = [imds.lose_answer if each == "lost" else fails(each) for each in failures]
        records = self.records()[-6:]
        record = data.draw(st.sampled_from([*records, *records[-1:] * 6]))
        signer = self.court.curve if curve else self.court.signer
        jti = f"jti-{len(self.story.issued)}"
        time = self.now + ahead
        token = signer.approve(record, now=time, jti=jti)
        self.story.issued.append(
            Issued(
                jti=jti,
                token=token,
                time=time,
                event=record["data"]["event"]["eventId"],
                fingerprint=record["data"]["fingerprint"],
            )
        )
        self.send(self.story.issued[-1])
        if then != "nothing":
            self.change(event=event, change=then)

    @precondition(lambda self: self.story.issued)
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        self.send(data.draw(st.sampled_from(self.story.issued)))

    @precondition(lambda self: self.story.issued)
    @rule(data=st.data(), place=st.integers(0, 1000), bit=st.integers(0, 7))
    def send_bent(self, data: st.DataObject, place: int, bit: int) -> None:
        issued = data.draw(st.sampled_from(self.story.issued))
        token = bytearray(issued.token)
        token[place % len(token)] ^= 1 << bit
        self.send(replace(issued, token=bytes(token)))

    def send(self, issued: Issued) -> None:
        """Send a token; it is accepted where the judge, the rate and the past say so."""
        court = self.court
        expected = reason_against(issued.token, self.facts(issued), now=self.shown)
        self.rate = [each for each in self.rate if each > court.clock.monotonic() - 60]
        if expected is None and len(self.rate) >= RATE:
            expected = "rate_limited"
        refused = Counter(court.refused())
        court.send(issued.token)
        told = {} if expected is None else {expected: 1}
        assert dict(Counter(court.refused()) - refused) == told
        self.counts[expected or "accepted"] += 1
        if expected is None:
            self.rate.append(court.clock.monotonic())
            assert issued.jti not in self.story.states
            self.story.states[issued.jti] = []
        self.story.check(self.court)

    @property
    def shown(self) -> float:
        """What the bridge's clock shows, in seconds since 1970."""
        return self.court.clock.now().timestamp()

    def facts(self, issued: Issued) -> Facts:
        court = self.court
        used = {(court.signer.issuer, jti) for jti in self.story.states}
        # The clock of who signs may be five seconds ahead.
        if self.lost is not None and issued.time - 5 <= self.lost <= self.shown:
            used.add((court.signer.issuer, issued.jti))  # nobody knows whether it was used
        latest = {
            each["data"]["event"]["eventId"].casefold(): each["data"] for each in self.records()
        }
        return Facts(
            signers=(court.signer, court.other, court.curve),
            vm_id=court.vm.vm_id,
            events={key: each for key, each in latest.items() if each["transition"] != "ended"},
            used=frozenset(used),
        )

    def records(self) -> list[Mapping[str, Any]]:
        """The records of events in the present store."""
        return [each for each in self.court.records() if "event" in each["data"]]

    # The bridge

    @rule()
    def restart(self) -> None:
        self.court.restart()
        self.rate = []
        self.look()

    @precondition(lambda self: self.court.store.head)
    @rule()
    def lose_the_store(self) -> None:
        """The file of the store is gone; what it was stays known by the file beside it."""
        self.court.close()
        for path in self.court.directory.glob("seb.db*"):
            path.unlink()
        self.court.begin()
        reset = StoreReset(**json.loads(self.court.store.remembered(RESET_KEY) or "null"))
        now = self.court.clock.now()
        self.court.store.commit(
            [bridge_records.store_reset(self.court.current.observer, now, reset)]
        )
        self.lost = int(self.shown)
        self.rate = []
        self.story.begin_anew()
        self.look()

    @rule(wrong=st.sampled_from([0.0, 0.0, 3600.0, -3600.0]))
    def set_the_clock(self, wrong: float) -> None:
        self.court.clock.jump(wrong - self.wrong)
        self.wrong = wrong

    def settle(self) -> None:
        """Every event ends: then every command that was accepted has its end."""
        self.court.imds.failures = []
        self.court.imds.events_now = {}
        for _ in range(2):
            self.look()
        assert self.story.unfinished() == []
        posts, receipts = len(self.court.imds.posts), self.story.receipts
        self.counts.update(lives=1, posts=posts, receipts=receipts)


def live(examples: int, steps: int) -> Figures:
    """Live through so many lives of a bridge; what happened."""
    Lives.counts.clear()
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Lives, settings=chosen)
    counts = Counter(Lives.counts)
    lives, receipts, posts = (counts.pop(each, 0) for each in ("lives", "receipts", "posts"))
    told = ", ".join(f"{count} {what}" for what, count in counts.most_common())
    return Figures(
        case="commands: lives of commands",
        rounds=lives,
        documents=0,
        records=receipts,
        repeated=0,
        dead=0,
        posts=posts,
        more=told,
    )


def test_a_few_lives(tell: Tell) -> None:
    """Some bridges, some commands."""
    tell(live(15, 25))


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_many_lives(tell: Tell) -> None:
    """Many bridges, many commands."""
    tell(live(150, 40))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_most_lives(tell: Tell) -> None:
    """So many that rare turns meet."""
    tell(live(2000, 60))
