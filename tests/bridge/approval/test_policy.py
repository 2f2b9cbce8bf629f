"""The rules of the VM's owner: which events each key matches, and what a rule decides."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.documents.documents import NOW, entry
from support.rules import DECIDING, EVERY_KEY, NARROWING

from bridge.approval.policy import Answer, RuleDecision, covers, decide, matches, sentence
from bridge.config.approval import Rule
from bridge.events.tracked import TrackedEvent
from bridge.imds.document import parse_event

VM = "web_3"
APPROVE: Answer = "approve"
WAIT: Answer = "wait"
REFUSE: Answer = "refuse"


def event(*, pending: bool = True, without: tuple[str, ...] = (), **fields: Any) -> TrackedEvent:
    """Return a pending event, first seen now, as IMDS would show it."""
    raw = {name: value for name, value in entry(**fields).items() if name not in without}
    parsed = parse_event(raw)
    return TrackedEvent(
        event=parsed,
        status=parsed.event_status,
        revision=1,
        first_seen=NOW,
        not_before=parsed.not_before,
        affects_this_vm=parsed.affects(VM),
        pending=pending,
    )


def says(
    *rules: Rule,
    about: TrackedEvent,
    vm_name: str = VM,
    now: datetime = NOW,
    acknowledged: Callable[[str], bool] = lambda sink: False,
) -> RuleDecision | None:
    """Return the decision of these rules."""
    return decide(rules, about, vm_name=vm_name, now=now, acknowledged=acknowledged)


def answer(*rules: Rule, about: TrackedEvent, **how: Any) -> Answer | None:
    """Return the answer of these rules; None if no rule matches."""
    decision = says(*rules, about=about, **how)
    return decision and decision.answer


ANY = Rule(name="any")


def test_without_a_rule_nothing_is_decided() -> None:
    """Without a rule there is no decision: no rule is there by default."""
    assert answer(about=event()) is None


@pytest.mark.parametrize(
    ("rule", "fields", "expected"),
    [
        ({}, {}, APPROVE),
        ({"event_type": ("Freeze",)}, {}, APPROVE),
        ({"event_type": ("freeze",)}, {"event_type": "FREEZE"}, APPROVE),
        ({"event_type": ("Reboot", "Freeze")}, {}, APPROVE),
        ({"event_type": ("Reboot",)}, {}, None),
        ({"event_type": ("Freez",)}, {}, None),
        ({"event_type": ("Freeze",)}, {"without": ("EventType",)}, None),
        ({}, {"without": ("EventType",)}, APPROVE),
        ({"event_source": ("User",)}, {"source": "User"}, APPROVE),
        ({"event_source": ("User",)}, {"source": "Platform"}, None),
        ({"event_source": ("User",)}, {"without": ("EventSource",)}, None),
        ({"max_duration": 9}, {"duration": 9}, APPROVE),
        ({"max_duration": 8.9}, {"duration": 9}, None),
        ({"max_duration": 0}, {"duration": 0}, APPROVE),
        ({"max_duration": 9}, {"duration": -1}, None),
        ({"max_duration": 9}, {"without": ("DurationInSeconds",)}, None),
        ({}, {"duration": -1}, APPROVE),
        ({}, {"resources": ("WEB_3",)}, APPROVE),
        ({}, {"resources": ("web_33",)}, None),
        ({}, {"resources": ("web",)}, None),
        ({}, {"resources": ()}, None),
        ({"affects_this_vm": False}, {"resources": ("web_4",)}, APPROVE),
        ({"affects_this_vm": False}, {"resources": ()}, REFUSE),
        ({"affects_this_vm": False, "max_resources": 0}, {"resources": ()}, REFUSE),
        ({}, {"resources": ("web_3", 7)}, REFUSE),
        ({}, {"resources": ("web_3", "")}, REFUSE),
        ({}, {"resources": ("web_3", None)}, REFUSE),
        ({}, {"resources": ("_web_3",)}, APPROVE),
        ({"affects_this_vm": False}, {"without": ("Resources",)}, REFUSE),
        ({}, {"resources": ("web_3", "web_4")}, REFUSE),
        ({"max_resources": 2}, {"resources": ("web_3", "web_4")}, APPROVE),
        ({"max_resources": 2}, {"resources": ("web_3", "web_4", "web_5")}, REFUSE),
        ({"max_resources": 0}, {}, REFUSE),
        ({}, {"status": "Started"}, None),
        ({}, {"status": "Completed"}, None),
        ({}, {"status": "Canceled"}, None),
        ({}, {"status": "Pondering"}, None),
        ({}, {"pending": False}, None),
        ({"after": ("drain",)}, {}, WAIT),
    ],
)
def test_each_key_of_a_rule(
    rule: dict[str, Any], fields: dict[str, Any], expected: Answer | None
) -> None:
    """A key of a rule that is given matches as designed, and one that is not given matches any
    event.
    """
    assert expected == answer(Rule(name="r", **rule), about=event(**fields))


def test_the_first_rule_that_matches_decides() -> None:
    """A rule that refuses or waits is not overruled by a later one."""
    never = Rule(name="never", event_type=("Freeze",), max_resources=0)
    decision = says(Rule(name="other", event_type=("Reboot",)), never, ANY, about=event())
    assert decision is not None
    assert (decision.rule.name, decision.answer) == ("never", REFUSE)
    assert decision.explanation == "it would release 1 VM, and the rule allows none"
    waits = ANY.model_copy(update={"name": "waits", "after": ("drain",)})
    assert answer(waits, ANY, about=event()) is WAIT


@pytest.mark.parametrize(
    ("first", "missing", "expected"),
    [
        ({"event_source": ("Platform",), "max_resources": 0}, "EventSource", WAIT),
        ({"event_source": ("Platform",), "after": ("drain",)}, "EventSource", WAIT),
        ({"event_type": ("Redeploy",), "max_resources": 0}, "EventType", WAIT),
        ({"event_source": ("Platform",)}, "EventSource", APPROVE),
        (
            {"event_source": ("Platform",), "event_type": ("Redeploy",), "max_resources": 0},
            "EventSource",
            APPROVE,
        ),
    ],
)
def test_a_missing_word_leads_past_no_rule_that_refuses_or_waits(
    first: dict[str, Any], missing: str, expected: Answer
) -> None:
    """If the document leaves out the word by which a rule selects the events that it refuses or
    waits for, or has it blank, no later rule approves.
    """
    blank = {"source": " "} if missing == "EventSource" else {"event_type": ""}
    for about in (
        event(without=(missing,), event_type="Reboot"),
        event(**{"event_type": "Reboot", **blank}),
    ):
        decision = says(Rule(name="first", **first), ANY, about=about)
        assert decision is not None
        assert decision.answer == expected
        assert decision.rule.name == ("first" if expected is WAIT else "any")


def test_a_word_with_spaces_around_it_is_that_word() -> None:
    """A rule that refuses matches a word that IMDS sends with a space."""
    never = Rule(name="never", event_source=("Platform",), max_resources=0)
    assert answer(never, ANY, about=event(source="platform ")) is REFUSE


def test_every_named_sink_must_have_acknowledged() -> None:
    """If a rule names two sinks, both must have acknowledged; the decision names those that have
    not.
    """
    rule = Rule(name="r", after=("drain", "flush"))
    decision = says(rule, about=event(), acknowledged=lambda sink: sink == "drain")
    assert decision is not None
    assert decision.explanation == "flush has not acknowledged it"
    assert answer(rule, about=event(), acknowledged=lambda sink: True) is APPROVE


def test_too_many_vms_are_refused_before_anybody_is_waited_for() -> None:
    """An event with too many VMs is refused at once, before any sink is waited for."""
    rule = Rule(name="r", after=("drain",), leader="first")
    assert answer(rule, about=event(resources=("web_4", "web_3"))) is REFUSE


LEAD = Rule(name="lead", max_resources=3, leader="first")
TAKEOVER = LEAD.model_copy(update={"takeover": 60.0})


@pytest.mark.parametrize(
    ("rule", "resources", "seconds", "expected"),
    [
        (LEAD, ("web_3", "web_4"), 0, APPROVE),
        (LEAD, ("Web_3", "web_4"), 0, APPROVE),
        (LEAD, ("web_4", "web_3"), 0, WAIT),
        (LEAD, ("web_4", "web_3"), 1e9, WAIT),
        (TAKEOVER, ("web_3", "web_4"), 0, APPROVE),
        (TAKEOVER, ("web_4", "WEB_3"), 59.999, WAIT),
        (TAKEOVER, ("web_4", "WEB_3"), 60, APPROVE),
        (TAKEOVER, ("web_4", "web_5", "web_3"), 60, WAIT),
        (TAKEOVER, ("web_4", "web_5", "web_3"), 119.9, WAIT),
        (TAKEOVER, ("web_4", "web_5", "web_3"), 120, APPROVE),
        (TAKEOVER, ("web_4", "web_3"), -3600, WAIT),
    ],
)
def test_one_leads_and_the_next_takes_over(
    rule: Rule, resources: tuple[str, ...], seconds: float, expected: Answer
) -> None:
    """The first VM acts at once, each next one after another takeover; without a takeover only the
    first one acts.
    """
    now = NOW + timedelta(seconds=seconds)
    assert expected is answer(rule, about=event(resources=resources), now=now)


def test_only_a_vm_that_is_listed_leads() -> None:
    """A rule with a leader does nothing on a VM that the event does not name."""
    rule = TAKEOVER.model_copy(update={"affects_this_vm": False})
    assert answer(rule, about=event(resources=("web_4",)), now=NOW + timedelta(days=9)) is WAIT


@settings(deadline=None)
@given(st.permutations(["web_1", "web_2", "web_3"]), st.floats(0, 400))
def test_at_any_moment_the_vms_agree_who_may_act(names: list[str], seconds: float) -> None:
    """At any moment the VMs that may act are the first ones of the list, the leader among them."""
    about, now = event(resources=tuple(names)), NOW + timedelta(seconds=seconds)
    acting = [
        answer(TAKEOVER, about=replace(about, affects_this_vm=True), vm_name=name, now=now)
        is APPROVE
        for name in names
    ]
    assert sorted(acting, reverse=True) == acting
    assert acting[0]


NARROWING_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "event_type": st.lists(st.sampled_from(["Freeze", "REBOOT"]), min_size=1, max_size=2),
    "event_source": st.lists(st.sampled_from(["Platform", "User"]), min_size=1, max_size=2),
    "max_duration": st.integers(0, 2).map(float),
}
RULES = st.fixed_dictionaries({"affects_this_vm": st.booleans()}, optional=NARROWING_VALUES).map(
    lambda keys: Rule(name="r", **keys)
)
EVENTS = st.builds(
    event,
    event_type=st.sampled_from(["Freeze", "Reboot", "Redeploy"]),
    source=st.sampled_from(["Platform", "User"]),
    duration=st.integers(-1, 3),
    resources=st.sampled_from([("web_3",), ("web_4",)]),
)


def test_every_key_that_narrows_a_rule_is_tried_against_covers() -> None:
    """Each key that decides which events match is in the rules above, which are tried against
    `covers`.
    """
    assert {"affects_this_vm", *NARROWING_VALUES} == NARROWING.keys()


@settings(deadline=None)
@given(RULES, EVENTS)
def test_a_rule_decides_about_an_event_exactly_if_it_matches(
    rule: Rule, about: TrackedEvent
) -> None:
    """No key that narrows a rule is left out where it decides."""
    assert matches(rule, about) == (answer(rule, about=about) is not None)


BESIDE: Sequence[str] = ("web_1", VM)
"""Two VMs, of which this one is the second."""
SITUATIONS: dict[str, tuple[dict[str, Any], dict[str, Any], timedelta]] = {
    "max_resources": ({}, {"resources": BESIDE}, timedelta()),
    "after": ({}, {}, timedelta()),
    "leader": ({"max_resources": 2}, {"resources": BESIDE}, timedelta()),
    "takeover": (
        {"max_resources": 2, "leader": "first"},
        {"resources": BESIDE},
        timedelta(seconds=61),
    ),
}
"""For each key that decides what becomes of an event that matches: other keys of the rule, fields
of an event, and the time since it was first seen, with which the key makes a difference.
"""


def test_every_key_that_decides_makes_a_difference() -> None:
    """A rule with the key decides otherwise than one without it: no key is a word without a
    meaning.
    """
    assert SITUATIONS.keys() == DECIDING.keys(), "SITUATIONS has one for each key of DECIDING"
    for key, (others, fields, since) in SITUATIONS.items():
        about = event(**fields)
        with_key, without = (
            answer(Rule(name="r", **others, **given), about=about, now=NOW + since)
            for given in ({key: DECIDING[key]}, {})
        )
        assert with_key != without, f"bridge/approval/policy.py, decide: {key}"


def test_the_sentence_names_every_key_of_a_rule() -> None:
    """The sentences of two rules in `seb check` differ if the rules differ in one key."""
    other = Rule(**EVERY_KEY)
    for key in EVERY_KEY:
        needed = {"leader": "first"} if key == "takeover" else {}
        plain = Rule(**{"name": "r", "max_resources": 2, **needed})
        changed = plain.model_copy(update={key: getattr(other, key)})
        assert sentence(plain) != sentence(changed), f"bridge/approval/policy.py, sentence: {key}"


@settings(deadline=None)
@given(RULES, RULES, EVENTS)
def test_a_rule_that_covers_another_matches_whatever_it_matches(
    one: Rule, other: Rule, about: TrackedEvent
) -> None:
    """A rule that is covered by an earlier one never decides, which is what `seb check`
    warns of.
    """
    assert covers(one, one)
    if covers(one, other) and matches(other, about):
        assert matches(one, about)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule(name="a"), "rule a approves every event that names this VM and no other"),
        (
            Rule(name="a", event_type=("Freeze", "Reboot"), event_source=("User",)),
            (
                "rule a approves every Freeze or Reboot event of source User that names this VM "
                "and no other"
            ),
        ),
        (
            Rule(name="a", max_duration=9, max_resources=2),
            (
                "rule a approves every event that is to last at most 9 s and names this VM and at "
                "most 1 other"
            ),
        ),
        (
            Rule(name="a", affects_this_vm=False, max_resources=5, after=("drain",)),
            (
                "rule a approves every event that names any VM, at most 5 at once, once drain has "
                "acknowledged its latest record"
            ),
        ),
        (
            Rule(name="a", max_resources=3, after=("x", "y"), leader="first"),
            (
                "rule a approves every event that names this VM and at most 2 others, once x and y "
                "have acknowledged its latest record, where this VM is the first that it lists"
            ),
        ),
        (
            TAKEOVER,
            (
                "rule lead approves every event that names this VM and at most 2 others, where "
                "this VM is the first that it lists; while it has not started, the next one "
                "listed acts 60 s after it first saw the event, and so on"
            ),
        ),
        (
            Rule(name="a", event_type=("Redeploy",), max_resources=0),
            "rule a refuses every Redeploy event that names this VM",
        ),
        (
            Rule(name="a", max_resources=0, affects_this_vm=False),
            "rule a refuses every event that names any VM",
        ),
    ],
)
def test_a_rule_is_a_sentence(rule: Rule, expected: str) -> None:
    """Each rule has a sentence that says what it will do."""
    assert expected == sentence(rule)
