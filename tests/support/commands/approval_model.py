"""Any course of events, commands, sinks and settings, and what an onlooker says of each POST.

No POST without a rule or a signature that holds for the newest recorded state at that moment. The
onlooker reads the records and the settings; it shares no code with what decides.
"""

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)
from support.commands.approval_world import SIGNERS, Setup, Step, World
from support.documents.documents import LATER, NOT_BEFORE, VM
from support.faults.oracle import Figures

from bridge.approval.policy import Rule

MEMORY = Path("/dev/shm")
"""What is on disk is not the subject here, and many stores are made."""
EVENTS = ("E-1", "E-2")
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
        Rule(name="lead", max_resources=3, leader_first=True),
    )
}
IN_FORCE = ["any", "drained", "drained", "drained", "two", "reboots any", "none", "short drained"]
IN_FORCE += ["", "everybody", "lead"]
EVERY, NO_EVENTS = ("seb.event.*",), ("seb.bridge.*",)
USUAL: list[Any] = [["web_3"], ["web_3"], ["web_3", "web_4"], ["web_4", "web_3", "web_5"]]
ODD: list[Any] = [["web_4"], ["web_3", 7], ["web_3", ""], [], None]
SETUPS = st.builds(
    Setup,
    sinks=st.fixed_dictionaries(
        {
            name: st.tuples(
                st.sampled_from(["program", "program", "webhook"]),
                st.sampled_from([EVERY, EVERY, NO_EVENTS, ("seb.event.started.v1",)]),
            )
            for name in ("drain", "ops")
        }
    ),
    rules=st.sampled_from(IN_FORCE).map(lambda names: tuple(RULES[each] for each in names.split())),
    trusted=st.lists(st.sampled_from(sorted(SIGNERS)), unique=True).map(tuple),
)
ENTRIES = st.fixed_dictionaries(
    {
        "Resources": st.sampled_from([*USUAL * 5, *ODD]),
        "EventType": st.sampled_from(["Freeze", "Reboot"]),
        "EventStatus": st.sampled_from([*["Scheduled"] * 8, "Started", "Odd"]),
        "NotBefore": st.sampled_from([NOT_BEFORE, LATER]),
        "DurationInSeconds": st.sampled_from([9, 60, -1]),
        "Description": st.sampled_from(["", "moved"]),
    }
)
SINKS = st.sampled_from(["drain", "drain", "drain", "ops"])
ANSWERS = st.sampled_from([*["acknowledge", "refuse"] * 2, "some", "fail", "hold"])
WAYS = ["takes it", "is lost", "has no effect", "refused", "http_400", "http_500", "timeout"]
SAYS = st.tuples(
    st.just("say"), st.sampled_from(EVENTS), st.one_of(ENTRIES, ENTRIES, ENTRIES, st.none())
)
SERVED = st.tuples(st.just("serve"), SINKS, ANSWERS)
OTHERS = st.one_of(
    SAYS,
    SAYS,
    st.just(("poll",)),
    SERVED,
    SERVED,
    st.tuples(st.just("drop"), SINKS),
    st.tuples(st.just("retry"), SINKS),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 5.0, 900.0])),
)
BACK = st.sampled_from([0, 0, 1, 2])
SAID = st.one_of(
    st.just(("look",)),
    st.tuples(st.just("command"), st.sampled_from(EVENTS), BACK, st.sampled_from(sorted(SIGNERS))),
    st.tuples(st.just("again"), st.integers(0, 9)),
    st.tuples(st.just("person"), st.sampled_from(EVENTS), BACK),
)
TURNS = st.lists(st.lists(OTHERS, max_size=3), max_size=6)
"""What the rest of the world does at each point at which the approver waits."""


class Approving(RuleBasedStateMachine):
    counts: ClassVar[Counter[str]] = Counter()
    """What happened in all courses together."""

    @initialize(setup=SETUPS)
    def begin(self, setup: Setup) -> None:
        self.counts["courses"] += 1
        self.root = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.world = World(Path(self.root.name), self.judge)
        self.world.begin(setup)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.counts.update(records=self.world.store.head, documents=self.world.imds.incarnation)
            told = Counter((each["jti"], each["state"]) for each in self.world.receipts())
            self.world.store.close()
            self.root.cleanup()
            final = Counter(jti for jti, state in told if state in ("failed", "confirmed"))
            repeated = {key: n for key, n in told.items() if n > 1 and key[1] != "rejected"}
            assert repeated == {}, "a step that is told twice"
            assert max(final.values(), default=0) <= 1, "two ends of one cause"

    @rule(steps=st.lists(OTHERS, max_size=4), turns=TURNS)
    def live(self, steps: list[Step], turns: list[list[Step]]) -> None:
        """Others do something; IMDS is looked at, and the approver looks while all else goes on."""
        self.world.do([*steps, ("poll",)])
        self.approve(("look",), turns)

    @rule(step=SAID, turns=TURNS)
    def approve(self, step: Step, turns: list[list[Step]]) -> None:
        """The approver has something to do, and takes its time."""
        self.counts["steps"] += 1
        self.world.meanwhile = list(turns)
        self.world.do([step])
        self.world.meanwhile = []

    @rule(says=SAYS, before=st.lists(SAID, max_size=1), after=st.lists(SAID, max_size=2))
    def approve_while_committing(self, says: Step, before: list[Step], after: list[Step]) -> None:
        """The approver works just before a poll's commit, and before the poll says so."""
        self.counts["steps"] += 1
        self.world.do([says])
        self.world.while_committing = [before, after]
        self.world.do([("poll",)])
        self.world.while_committing = []

    @rule(how=st.sampled_from(WAYS))
    def post_goes(self, how: str) -> None:
        """The next POST is answered so."""
        self.world.post_goes(how)

    @rule(setup=SETUPS)
    def restart(self, setup: Setup) -> None:
        """The next run, with other settings."""
        self.counts["restarts"] += 1
        self.world.restart(setup)

    # The onlooker

    def judge(self, event_id: str) -> None:
        """A POST goes out, and must have a ground."""
        self.counts["posts"] += 1
        record = self.world.records(event_id)[-1]
        data, event = record["data"], record["data"]["event"]
        named = data["raw"].get("Resources")
        assert data["transition"] != "ended", "POST for an event that is over"
        assert event["eventStatus"] == "Scheduled", "POST for an event that is not Scheduled"
        assert isinstance(named, list), "POST for an event that lists no VMs"
        assert named, "POST for an event that lists no VMs"
        assert all(isinstance(each, str) and each for each in named), "POST for unreadable VMs"
        if not self.is_said(event_id, data):
            self.judge_rule(record, named)
        assert sorted(self.world.released(event_id)) == sorted(named), "a false receipt"

    def is_said(self, event_id: str, data: Mapping[str, Any]) -> bool:
        """Whether a person, or a signature that is trusted, named this state of the event."""
        names_us = VM.name in data["raw"]["Resources"]
        said = (event_id.casefold(), data["fingerprint"])
        signers = self.world.setup.trusted if names_us else ()
        return any((*said, each) in self.world.words for each in (*signers, "person"))

    def judge_rule(self, record: Mapping[str, Any], named: Sequence[str]) -> None:
        """Whether the first rule that matches approves, and what it waits for has happened."""
        event = record["data"]["event"]
        found = next((each for each in self.world.setup.rules if _matches(each, event)), None)
        assert found is not None, "POST without a rule or a signature"
        assert len(named) <= found.max_resources, "POST for more VMs than the rule allows"
        assert not found.leader_first or named[0] == VM.name, "POST by a VM that does not lead"
        for sink in found.after:
            kind, _ = self.world.setup.sinks[sink]
            acknowledged = (sink, kind, record["id"]) in self.world.acknowledged
            assert acknowledged, "POST without the acknowledgement that the rule waits for"


def _matches(found: Rule, event: Mapping[str, Any]) -> bool:
    duration = event["durationInSeconds"]
    return (
        (not found.event_type or event["eventType"] in found.event_type)
        and (not found.affects_this_vm or VM.name in event["resources"])
        and (
            found.max_duration is None or (duration is not None and duration <= found.max_duration)
        )
    )


def try_courses(examples: int, steps: int) -> Figures:
    """Live through so many courses of so many steps; what happened in them."""
    Approving.counts.clear()
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    run_state_machine_as_test(Approving, settings=chosen)
    counts = Approving.counts
    assert counts["posts"] > 0
    return Figures(
        case="approval: any course of events",
        rounds=counts["courses"],
        documents=counts["documents"],
        records=counts["records"],
        repeated=0,
        dead=0,
        posts=counts["posts"],
        more=f"{counts['steps']} steps, {counts['restarts']} restarts",
    )
