"""Any course of events, commands, people, sinks, keys, settings, polls and disks, and what an
onlooker says of it.

No POST without a rule, a person or a signature that allows it at that moment. No command waits for
long. Each accepted command has one end. No id stands for two facts. The onlooker reads records,
documents and settings; it shares no code with what decides.
"""

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.commands.model_bench import SIGNERS, Bugs, ModelBench, Setup
from support.documents.documents import LATER, NOT_BEFORE, VM
from support.faults.oracle import Figures

from bridge.config.approval import Rule
from bridge.store import ballast
from bridge.store.database import StoreError

MEMORY = Path("/dev/shm")
"""What is on disk is not the subject here, and many stores are made."""
EVENTS = ("E-1", "E-2", "E-3")
CURRENT_SECONDS = 2.0
"""How old the document of the last poll may be, counted from its request: an interval, and a
second; and what the polls before it took, if all of them took long.
"""
RULES = {
    each.name: each
    for each in (
        Rule(name="any"),
        Rule(name="drained", max_resources=2, after=("drain",)),
        Rule(name="two", max_resources=2),
        Rule(name="none", max_resources=0),
        Rule(name="reboots", event_type=("Reboot",), after=("drain", "ops")),
        Rule(name="short", max_duration=10),
        Rule(name="everybody", affects_this_vm=False, max_resources=3),
        Rule(name="lead", max_resources=3, leader="first"),
        Rule(name="takeover", max_resources=3, leader="first", takeover=60.0),
    )
}
IN_FORCE = ["any", "drained", "drained", "two", "reboots any", "none", "short drained", "", ""]
IN_FORCE += ["everybody", "lead", "lead", "takeover", "takeover"]
EVERY, NO_EVENTS = ("seb.event.*",), ("seb.bridge.*",)
USUAL: list[Any] = [["web_3"], ["web_3"], ["web_3", "web_4"], ["web_4", "web_3", "web_5"]]
ODD: list[Any] = [["web_4"], ["web_3", 7], ["web_3", ""], [], None]
WAYS = ["takes it", "is lost", "has no effect", "refused", "http_400", "http_500", "timeout"]
WAYS += ["hangs", "hangs", "http_429"]


class Course:
    """One bridge's life of so many steps."""

    def __init__(self, root: Path, seed: str) -> None:
        self.bench = ModelBench(root, seed)
        self.random: random.Random = self.bench.random
        self.bench.judge, self.bench.other, self.bench.act = self.judge, self.other, self.act
        self._others = _weighted(self._things_of_others())
        self._acts = _weighted(self._things_to_do())
        self._rare = _weighted(self._rare_things())

    def live(self, steps: int) -> None:
        """Live through so many steps, and bring everything to its end."""
        with Bugs() as bugs:
            self._live(steps, bugs)

    def _live(self, steps: int, bugs: Bugs) -> None:
        bench = self.bench
        bench.begin(self.setup())
        for _ in range(steps):
            bench.counts["steps"] += 1
            kind = self.random.random()
            if kind < 0.68:
                self.other()
            elif kind < 0.97:
                self.act()
            else:
                self.pick(self._rare)()
            if self.random.random() < 0.8:
                bench.work()
            bugs.check()
        bench.finish()
        bugs.check()
        self.check_receipts()
        bench.end()

    # Choices

    def pick(self, among: list[Any]) -> Any:
        """One of these."""
        return among[self.random.randrange(len(among))]

    def other(self) -> None:
        """Something that happens to the bridge; on a full disk it does not."""
        with suppress(StoreError):
            self.pick(self._others)()

    def act(self) -> None:
        """Something that somebody asks the approver for."""
        self.pick(self._acts)()

    def setup(self) -> Setup:
        """Settings of a run."""
        sinks = {
            name: (
                self.pick(["program", "program", "webhook"]),
                self.pick([EVERY, EVERY, NO_EVENTS, ("seb.event.started.v1",)]),
            )
            for name in ("drain", "ops")
        }
        names = self.pick(IN_FORCE).split()
        return Setup(sinks=sinks, rules=tuple(RULES[each] for each in names))

    def entry(self) -> dict[str, Any] | None:
        """What IMDS says of an event."""
        if self.random.random() < 0.15:
            return None
        return {
            "Resources": self.pick(USUAL * 5 + ODD),
            "EventType": self.pick(["Freeze", "Reboot"]),
            "EventStatus": self.pick(["Scheduled"] * 9 + ["Started", "Advisory"]),
            "NotBefore": self.pick([NOT_BEFORE, LATER]),
            "DurationInSeconds": self.pick([9, 60, -1]),
            "Description": self.pick(["", "moved"]),
        }

    def keys(self) -> frozenset[str] | None:
        """What is in the trust file; a `kid` stands there once."""
        if self.random.random() < 0.1:
            return None
        names = [each for each in SIGNERS if self.random.random() < 0.7]
        if {"one", "one, renewed"} <= set(names):
            names.remove(self.pick(["one", "one, renewed"]))
        return frozenset(names)

    def _things_of_others(self) -> Mapping[Callable[[], None], int]:
        bench, pick = self.bench, self.pick
        answers = ["acknowledge", "refuse", "acknowledge", "refuse", "some", "fail", "hold"]
        twins: list[Mapping[str, Any]] = [{}, {"Resources": ["web_3", "web_4"]}, {"EventType": "X"}]

        def disk() -> None:
            bench.disk(full=self.random.random() < 0.3)

        def hanging() -> None:
            bench.imds.hanging = self.random.random() < 0.3

        return {
            lambda: bench.say(pick(list(EVENTS)), self.entry()): 10,
            lambda: bench.reorder(pick(list(EVENTS))): 3,
            lambda: bench.name_twice(pick(list(EVENTS)), pick(twins)): 2,
            lambda: bench.hide(pick(list(EVENTS))): 1,
            bench.clear: 4,
            bench.poll: 24,
            bench.poll_fails: 4,
            lambda: bench.serve(pick(["drain", "drain", "ops"]), pick(answers)): 8,
            lambda: bench.drop(pick(["drain", "ops"])): 1,
            lambda: bench.retry(pick(["drain", "ops"])): 1,
            lambda: bench.wait(pick([1.0, 5.0, 30.0, 400.0])): 2,
            lambda: pick([bench.freeze, bench.suspend, bench.pause])(pick([3.0, 20.0, 400.0])): 2,
            lambda: bench.trust(self.keys()): 3,
            lambda: bench.post_goes(pick(WAYS)): 5,
            disk: 2,
            hanging: 2,
        }

    def _things_to_do(self) -> Mapping[Callable[[], None], int]:
        bench, pick = self.bench, self.pick
        back = [0, 0, 0, 1, 2]

        def command() -> None:
            signer, lifetime = pick(list(SIGNERS)), pick([5, 20, 60, 300])
            bench.command(pick(list(EVENTS)), pick(back), signer, lifetime)

        return {
            command: 8,
            lambda: bench.again(self.random.randrange(10)): 1,
            lambda: bench.person(pick(list(EVENTS)), pick(back)): 2,
            bench.poll: 6,
        }

    def _rare_things(self) -> Mapping[Callable[[], None], int]:
        bench = self.bench
        return {
            lambda: bench.restart(self.setup()): 20,
            lambda: bench.copy(self.setup()): 5,
            lambda: bench.put_back(self.setup()): 5,
            lambda: bench.set_clock(self.pick([-7200.0, -60.0, 60.0, 7200.0])): 4,
            bench.many_end: 1,
        }

    # The onlooker

    def judge(self, event_id: str) -> None:
        """A POST goes out, and must be allowed by what is true now."""
        self.bench.counts["posts"] += 1
        shown = self.shown(event_id)
        record = self.bench.record(event_id)
        assert record is not None, "POST for an event without a record"
        data, named = record["data"], shown["Resources"]
        assert data["transition"] != "ended", "POST for an event that is over"
        assert _state(data["raw"]) == _state(shown), "POST for a state that has no record"
        assert shown["EventStatus"] == "Scheduled", "POST for an event that is not Scheduled"
        assert isinstance(named, list), "POST for an event that lists no VMs"
        assert named, "POST for an event that lists no VMs"
        assert all(isinstance(each, str) and each for each in named), "POST for unreadable VMs"
        open_ones = self.bench.accepted(event_id)
        why = [self.objection(jti, actor, record, shown) for jti, actor in open_ones]
        assert None in why, f"POST that nothing allows: {why}"

    def shown(self, event_id: str) -> Mapping[str, Any]:
        """The event as the last poll showed it."""
        bench = self.bench
        assert bench.shown is not None, "POST although the last poll failed"
        age = bench.real - bench.shown_at
        assert age <= CURRENT_SECONDS + bench.patience, f"POST on a document of {age} s ago"
        entries = [
            each
            for each in bench.shown
            if each.get("EventId", "").casefold() == event_id.casefold()
        ]
        assert entries, "POST for an event that the last poll did not show"
        contents = [{**each, "EventId": ""} for each in entries]
        assert all(each == contents[0] for each in contents), "POST for an ambiguous event"
        return entries[0]

    def objection(  # noqa: PLR0911  # one for each case
        self, jti: str, actor: str, record: Mapping[str, Any], shown: Mapping[str, Any]
    ) -> str | None:
        """Why an open approval allows no POST now; None if it does."""
        bench, data = self.bench, record["data"]
        key, fingerprint = data["event"]["eventId"].casefold(), data["fingerprint"]
        if actor.startswith("rule:"):
            return self.rule_objection(actor, record, shown)
        word = bench.people.get(jti) or bench.words[jti]
        if (word.key, word.fingerprint) != (key, fingerprint):
            return "a word about another state"
        if actor.startswith("local:"):
            return None
        if VM.name not in shown["Resources"]:
            return "it does not name this VM"
        if word.signer not in (bench.trusted or ()):
            return "a key that is not trusted"
        if bench.clock.now().timestamp() >= word.expires:
            return "an expired command"
        return None

    def rule_objection(
        self, actor: str, record: Mapping[str, Any], shown: Mapping[str, Any]
    ) -> str | None:
        """The same for an approval of a rule."""
        event, named = record["data"]["event"], shown["Resources"]
        found = next((each for each in self.bench.setup.rules if _matches(each, event)), None)
        if found is None or actor != f"rule:{found.name}":
            return "not the rule that matches first"
        if len(named) > found.max_resources:
            return "more VMs than the rule allows"
        if found.leader and not self.leads(found, event["eventId"], named):
            return "another VM leads"
        for sink in found.after:
            kind, _ = self.bench.setup.sinks[sink]
            if (sink, kind, record["id"]) not in self.bench.acknowledged:
                return "the acknowledgement that the rule waits for is missing"
        return None

    def leads(self, found: Rule, event_id: str, named: list[str]) -> bool:
        """Whether it is this VM's turn, in the order of the last poll and by true time."""
        if VM.name not in named:
            return False
        place = named.index(VM.name)
        since = self.bench.real - self.bench.appeared[event_id.casefold()]
        return place == 0 or (found.takeover is not None and since >= place * found.takeover)

    def check_receipts(self) -> None:
        """Each step of an approval is told once, and each that was accepted has one end."""
        told = Counter((each["jti"], each["state"]) for each in self.bench.receipts())
        repeated = {key: n for key, n in told.items() if n > 1 and key[1] != "rejected"}
        assert repeated == {}, f"a step that is told twice: {repeated}"
        final = Counter(jti for jti, state in told if state in ("failed", "confirmed"))
        accepted = {jti for jti, state in told if state == "accepted"}
        self.bench.counts["accepted"] += len(accepted)
        assert all(final[jti] == 1 for jti in accepted), "an approval without its one end"


def _weighted(things: Mapping[Callable[[], None], int]) -> list[Callable[[], None]]:
    return [thing for thing, weight in things.items() for _ in range(weight)]


def _matches(found: Rule, event: Mapping[str, Any]) -> bool:
    duration = event["durationInSeconds"]
    return (
        (not found.event_type or event["eventType"] in found.event_type)
        and (not found.affects_this_vm or VM.name in event["resources"])
        and (
            found.max_duration is None or (duration is not None and duration <= found.max_duration)
        )
    )


def _state(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of IMDS, without the order of its VMs and the case of its id."""
    named = entry.get("Resources")
    return {
        **entry,
        "EventId": entry["EventId"].casefold(),
        "Resources": sorted(named, key=str) if isinstance(named, list) else named,
    }


def try_courses(seed: str, courses: int, steps: int) -> Figures:
    """Live through so many courses of so many steps; what happened in them. A failure names the
    seed of its course: `try_course` lives through that one again.
    """
    counts: Counter[str] = Counter()
    begun = time.monotonic()
    for number in range(courses):
        counts.update(try_course(f"{seed}.{number}", steps))
    assert counts["posts"] > 0
    spent = time.monotonic() - begun
    return Figures(
        case=f"approval: any course of events, seed {seed}",
        rounds=courses,
        documents=counts["documents"],
        records=counts["records"],
        repeated=0,
        dead=0,
        posts=counts["posts"],
        more=f"{counts['steps']} steps, {counts['commands']} commands, {counts['accepted']} "
        f"accepted, {counts['restarts']} restarts, {counts['disks put back']} disks put back, "
        f"{counts['hanging POSTs']} POSTs that hung, {counts['slow answers']} slow answers, "
        f"{counts['standstills']} standstills, {spent:.0f} s",
    )


def try_course(seed: str, steps: int) -> Counter[str]:
    """Live through one course; what happened in it."""
    with (
        tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as root,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(ballast, "SIZE_BYTES", 1)
        course = Course(Path(root), seed)
        try:
            course.live(steps)
        except BaseException as error:
            error.add_note(f"course {seed}, of {steps} steps")
            raise
        return course.bench.counts
