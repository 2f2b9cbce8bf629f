"""Why an event may not go by itself, as sentences for people; why a person's approval is refused.

A reason of the first kind leaves the event to people, unlike waiting for room in a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, Literal

from console.turns.groups import is_open
from console.turns.prepared import has_failed, is_prepared
from console.turns.reading import Reading
from console.turns.situation import EventFacts, Turn, VmFacts

Refusal = Literal["not_its_turn", "cannot_prepare", "not_prepared"]
NO_KEY: Final = "the console cannot approve: SEB_CONSOLE_KEY is not set"
_NEEDS_TWO: Final = "two persons approve an event of so many VMs"
_IS_LEFT: Final = "a person left it until Azure starts it"


def refusal(event: EventFacts, reading: Reading) -> Refusal | None:
    """Return why a person may not approve an event without a turn, except by force, or None."""
    if reading.over_budget(event):
        return "not_its_turn"
    preparing = [vm for vm in reading.situation.named(event) if vm.prepares]
    if any(not vm.is_heard for vm in preparing):
        return "cannot_prepare"
    if all(is_prepared(vm, event) for vm in preparing):
        return None
    if reading.is_too_late(event) or any(has_failed(vm, event) for vm in preparing):
        return "not_prepared"
    return None


def why_for_people(event: EventFacts, reading: Reading) -> str | None:
    """Return why the console does not give the event its turn by itself, or None."""
    if not reading.situation.can_sign:
        return NO_KEY
    return (
        _about_its_vms(event, reading)
        or _about_the_event(event, reading)
        or _about_its_groups(event, reading)
    )


def why_not_by_groups(event: EventFacts, reading: Reading) -> str | None:
    """Return why groups do not approve the event by themselves, or None. The cause may pass in a
    moment.
    """
    if not reading.situation.groups_touched(event):
        return "no group of the settings has its VMs any more"
    return (
        _why_too_large(event, reading)
        or _names_unknown_vms(event)
        or kept_for_people(event)
        or _about_its_groups(event, reading)
    )


def why_no_longer_approved(turn: Turn, event: EventFacts, reading: Reading) -> str | None:
    """Return why an event whose VMs prepare, or are prepared, may not be approved any more, or
    None.
    """
    if turn.is_by_group:
        return why_not_by_groups(event, reading)
    if event.needs_two and not event.has_first and turn.state != "approving":
        return _NEEDS_TWO  # the first approval has ended: the event had changed for a moment
    if event.is_left:
        return _IS_LEFT
    if turn.is_forced or turn.state != "preparing":
        return None
    return _why_too_large(event, reading)  # its VMs would wait, and the events behind it too


def kept_for_people(event: EventFacts) -> str | None:
    """Return why people, and not groups, decide about the event, or None."""
    if event.needs_two:
        return _NEEDS_TWO
    return _IS_LEFT if event.is_left else None


def _about_its_vms(event: EventFacts, reading: Reading) -> str | None:
    named = reading.situation.named(event)
    permanent = _why_too_large(event, reading) or _names_unknown_vms(event)
    if permanent is not None:
        return permanent
    silent = sorted(vm.name for vm in named if not vm.is_heard)
    if silent:
        return f"the console does not hear {', '.join(silent)}"
    vms = reading.situation.vms
    not_reporting = sorted(vm.name for vm in named if not event.counts_for(vm, vms))
    if not_reporting:
        return f"{', '.join(not_reporting)} does not report it"
    return _about_its_programs(named)


def _about_its_programs(named: Sequence[VmFacts]) -> str | None:
    not_said = sorted(vm.name for vm in named if not vm.has_said)
    if not_said:
        return f"{', '.join(not_said)} has not said yet whether it prepares"
    without_commands = sorted(vm.name for vm in named if vm.prepares and not vm.takes_commands)
    if without_commands:
        return f"{', '.join(without_commands)} takes no commands"
    if not any(vm.takes_commands for vm in named):
        return "no VM that it names takes commands"
    return None


def _why_too_large(event: EventFacts, reading: Reading) -> str | None:
    key = reading.group_too_small(event)
    if key is None:
        return None
    at_most = reading.situation.groups[key].at_most
    return f"it names more VMs of {key} than the {at_most} that may be away"


def _names_unknown_vms(event: EventFacts) -> str | None:
    if event.unknown_names:
        return f"the console does not know {', '.join(event.unknown_names)}"
    return None


def _about_the_event(event: EventFacts, reading: Reading) -> str | None:
    if event.is_disputed:
        return "the VMs that report it do not agree"
    if event.ended_by is not None:
        return f"{event.ended_by} has ended its turn"
    if reading.is_too_late(event):
        return "Azure starts it too soon"
    return kept_for_people(event)


def _about_its_groups(event: EventFacts, reading: Reading) -> str | None:
    for key in reading.situation.groups_touched(event):
        rule = reading.situation.groups[key].rule
        if rule.approve is None or not rule.approve.matches(event.reported):
            return f"{key} leaves it to people"
        if not is_open(rule.window, datetime.fromtimestamp(reading.now, UTC)):
            return f"the window of {key} is closed"
    return None
