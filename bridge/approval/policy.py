"""The owner's rules; values in, values out. Without a rule nothing is approved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from bridge.config.approval import ApprovalSettings
from bridge.events.tracked import TrackedEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. What is None or empty matches anything."""

    name: str
    event_type: tuple[str, ...] = ()
    event_source: tuple[str, ...] = ()
    max_duration: float | None = None
    """Matches where the duration is known and at most so many seconds."""
    affects_this_vm: bool = True
    """Match only events that name this VM."""
    max_resources: int = 1
    """An approval releases every VM that the event lists: refuse above this many."""
    after: tuple[str, ...] = ()
    """Sinks that must have acknowledged the event's latest record first."""
    leader_first: bool = False
    """Only the first VM in the event's resources acts."""
    takeover: float | None = None
    """With `leader_first`: after so many seconds without Started, the next VM may act."""

    def matches(self, known: TrackedEvent) -> bool:
        """Whether this rule decides about the event."""
        event = known.event
        duration = event.duration_in_seconds
        return (
            _listed(event.event_type, self.event_type)
            and _listed(event.event_source, self.event_source)
            and (known.affects_this_vm or not self.affects_this_vm)
            and (
                self.max_duration is None
                or (duration is not None and duration <= self.max_duration)
            )
        )

    def covers(self, other: Rule) -> bool:
        """Whether this rule matches every event that the other one matches."""
        return (
            _within(other.event_type, self.event_type)
            and _within(other.event_source, self.event_source)
            and (other.affects_this_vm or not self.affects_this_vm)
            and (
                self.max_duration is None
                or (other.max_duration is not None and other.max_duration <= self.max_duration)
            )
        )

    def sentence(self) -> str:
        """What the rule will do, for `seb check`."""
        text = f"rule {self.name} {'approves' if self.max_resources else 'refuses'} every "
        text += f"{' or '.join(self.event_type)} event" if self.event_type else "event"
        if self.event_source:
            text += f" of source {' or '.join(self.event_source)}"
        if self.max_duration is not None:
            text += f" that is to last at most {self.max_duration:g} s and {self._reach()}"
        else:
            text += f" that {self._reach()}"
        if not self.max_resources:
            return text
        if self.after:
            have = "have" if len(self.after) > 1 else "has"
            text += f", once {' and '.join(self.after)} {have} acknowledged its latest record"
        if self.leader_first:
            text += ", where this VM is the first that it lists"
        if self.takeover is not None:
            text += (
                f"; while it has not started, the next one listed acts {self.takeover:g} s after "
                "it first saw the event, and so on"
            )
        return text

    def _reach(self) -> str:
        others = self.max_resources - 1
        if self.max_resources and self.affects_this_vm:
            many = f"at most {others} other{'s' if others > 1 else ''}" if others else "no other"
            return f"names this VM and {many}"
        if self.affects_this_vm:
            return "names this VM"
        if not self.max_resources:
            return "names whichever VM"
        return f"names any VM, at most {self.max_resources} at once"


def rules_of(approval: ApprovalSettings) -> list[Rule]:
    """The rules, in the order in which they decide."""
    return [
        Rule(leader_first=each.leader == "first", **each.model_dump(exclude={"leader"}))
        for each in approval.rules
    ]


def objection(known: TrackedEvent | None, fingerprint: str | None) -> str | None:
    """Why an event cannot be approved in the state of that fingerprint (None: any), or None."""
    if known is None or not known.pending:
        return "unknown_event"
    if known.event.event_status != "Scheduled":
        return "already_started"
    if fingerprint not in (None, known.fingerprint):
        return "event_changed"
    return None if known.event.names_its_vms else "not_allowed"


class Verdict(Enum):
    """What a rule says of an event now."""

    APPROVE = "approve"
    WAIT = "wait"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A rule's verdict; `why` is one clause for a person."""

    rule: Rule
    verdict: Verdict
    why: str


def decide(
    rules: Sequence[Rule],
    known: TrackedEvent,
    *,
    vm_name: str,
    now: datetime,
    acknowledged: Callable[[str], bool],
) -> Decision | None:
    """What the first matching rule says of a pending event now; None without such a rule."""
    if not known.pending or known.event.event_status != "Scheduled":
        return None
    rule = next((rule for rule in rules if rule.matches(known)), None)
    if rule is None:
        return None
    if why := _refusal(rule, known):
        return Decision(rule=rule, verdict=Verdict.REFUSE, why=why)
    waiting = [sink for sink in rule.after if not acknowledged(sink)]
    if waiting:
        why = f"{', '.join(waiting)} has not acknowledged it"
        return Decision(rule=rule, verdict=Verdict.WAIT, why=why)
    if rule.leader_first and not _may_lead(rule, known, vm_name, now):
        return Decision(rule=rule, verdict=Verdict.WAIT, why="another VM leads")
    return Decision(rule=rule, verdict=Verdict.APPROVE, why="the rule says so")


def _refusal(rule: Rule, known: TrackedEvent) -> str | None:
    count = len(known.event.resources)
    if not known.event.names_its_vms:
        return "the VMs that it would release are not all named"
    if count > rule.max_resources:
        return f"it would release {count} VMs, and the rule allows {rule.max_resources}"
    return None


def _may_lead(rule: Rule, known: TrackedEvent, vm_name: str, now: datetime) -> bool:
    """Whether it is this VM's turn: the first at once, each next one after another `takeover`."""
    names = [name.casefold() for name in known.event.resources]
    if vm_name.casefold() not in names:
        return False
    place = names.index(vm_name.casefold())
    if place == 0:
        return True
    if rule.takeover is None:
        return False
    return (now - known.first_seen).total_seconds() >= place * rule.takeover


def _listed(word: str | None, words: Sequence[str]) -> bool:
    """Whether a word of Azure's is one of these; Azure's case is not relied on."""
    return not words or (word or "").casefold() in {each.casefold() for each in words}


def _within(words: Sequence[str], others: Sequence[str]) -> bool:
    """Whether whatever is one of the words is one of the others; no words stand for any."""
    return not others or (bool(words) and all(_listed(word, others) for word in words))
