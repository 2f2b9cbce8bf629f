"""The owner's rules; values in, values out. Without a rule nothing is approved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from bridge.config.approval import Rule
from bridge.events.tracked import TrackedEvent

BEGUN: Final = ("Started", "Completed", "Canceled")
"""Azure's statuses of an event that no longer needs an approval."""


def matches(rule: Rule, tracked: TrackedEvent) -> bool:
    """Check whether this rule decides about the event."""
    return _concerns(rule, tracked) and rule.matches(tracked.event)


def _concerns(rule: Rule, tracked: TrackedEvent) -> bool:
    return tracked.affects_this_vm or not rule.affects_this_vm


def covers(rule: Rule, other: Rule) -> bool:
    """Check whether this rule matches every event that the other one matches."""
    return rule.includes(other) and (other.affects_this_vm or not rule.affects_this_vm)


def sentence(rule: Rule) -> str:
    """Return the effect of a rule as a sentence, as `seb check` shows it."""
    text = f"rule {rule.name} {'approves' if rule.max_resources else 'refuses'} {rule.subject} "
    text += f"that {' and '.join([*rule.clauses, _reach(rule)])}"
    if not rule.max_resources:
        return text
    if rule.after:
        have = "have" if len(rule.after) > 1 else "has"
        text += f", once {' and '.join(rule.after)} {have} acknowledged its latest record"
    if rule.leader:
        text += ", where this VM is the first that it lists"
    if rule.takeover is not None:
        text += (
            f"; while it has not started, the next one listed acts {rule.takeover:g} s after "
            "it first saw the event, and so on"
        )
    return text


def _reach(rule: Rule) -> str:
    others = rule.max_resources - 1
    if rule.max_resources and rule.affects_this_vm:
        many = f"at most {others} other{'s' if others > 1 else ''}" if others else "no other"
        return f"names this VM and {many}"
    if rule.affects_this_vm:
        return "names this VM"
    if not rule.max_resources:
        return "names any VM"
    return f"names any VM, at most {rule.max_resources} at once"


def objection(tracked: TrackedEvent | None, fingerprint: str | None) -> str | None:
    """Return why an event cannot be approved in the state of that fingerprint (None: any state), or
    None.
    """
    if tracked is None or not tracked.pending:
        return "unknown_event"
    if tracked.event.event_status in BEGUN:
        return "already_started"
    if tracked.event.event_status != "Scheduled" or tracked.event.is_ambiguous:
        return "not_approvable"
    if fingerprint not in (None, tracked.fingerprint):
        return "event_changed"
    return None if tracked.event.names_its_vms else "not_allowed"


Answer = Literal["approve", "wait", "refuse"]
"""The answer of a rule for an event now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleDecision:
    """The decision of a rule; `explanation` is one clause for a person."""

    rule: Rule
    answer: Answer
    explanation: str
    reason: str | None = None
    """Why it refuses, as the receipt says it."""


def decide(
    rules: Sequence[Rule],
    tracked: TrackedEvent,
    *,
    vm_name: str,
    now: datetime,
    acknowledged: Callable[[str], bool],
) -> RuleDecision | None:
    """Return the decision of the first rule that matches a pending event; None without
    such a rule.

    If the event lacks a word that a rule selects events by, a rule that would refuse waits instead:
    no later rule approves what the owner may have excluded.
    """
    if not tracked.pending or tracked.event.event_status != "Scheduled":
        return None
    for rule in rules:
        if matches(rule, tracked):
            return _decision_of(rule, tracked, vm_name, now, acknowledged)
        unknown = rule.unknown(tracked.event) if _concerns(rule, tracked) else ()
        if unknown and _decision_of(rule, tracked, vm_name, now, acknowledged).answer != "approve":
            explanation = f"IMDS does not say its {' and '.join(unknown)}"
            return RuleDecision(rule=rule, answer="wait", explanation=explanation)
    return None


def _decision_of(
    rule: Rule,
    tracked: TrackedEvent,
    vm_name: str,
    now: datetime,
    acknowledged: Callable[[str], bool],
) -> RuleDecision:
    """Return the decision of a rule that matches the event."""
    if explanation := _refusal(rule, tracked):
        reason = "not_approvable" if tracked.event.is_ambiguous else "not_allowed"
        return RuleDecision(rule=rule, answer="refuse", explanation=explanation, reason=reason)
    waiting = [sink for sink in rule.after if not acknowledged(sink)]
    if waiting:
        explanation = f"{', '.join(waiting)} has not acknowledged it"
        return RuleDecision(rule=rule, answer="wait", explanation=explanation)
    if rule.leader and not _may_lead(rule, tracked, vm_name, now):
        return RuleDecision(rule=rule, answer="wait", explanation="another VM leads")
    return RuleDecision(rule=rule, answer="approve", explanation="the rule says so")


def _refusal(rule: Rule, tracked: TrackedEvent) -> str | None:
    count = len(tracked.event.resources)
    if tracked.event.is_ambiguous:
        return "IMDS names it twice, with different content"
    if not tracked.event.names_its_vms:
        return "the VMs that it would release are not all named"
    if count > rule.max_resources:
        vms = "1 VM" if count == 1 else f"{count} VMs"
        return f"it would release {vms}, and the rule allows {rule.max_resources or 'none'}"
    return None


def _may_lead(rule: Rule, tracked: TrackedEvent, vm_name: str, now: datetime) -> bool:
    """Check whether it is this VM's turn to lead: the first VM at once, each next one after another
    `takeover`.
    """
    names = [name.casefold() for name in tracked.event.resources]
    if vm_name.casefold() not in names:
        return False
    index = names.index(vm_name.casefold())
    if index == 0:
        return True
    if rule.takeover is None:
        return False
    return (now - tracked.first_seen).total_seconds() >= index * rule.takeover
