"""Why an event may not go by itself, as sentences for people; why a person's approval is refused.

A reason of the first kind leaves the event to people, unlike waiting for room in a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

from console.fleet.values.keys import EventKey
from console.fleet.values.person_names import is_same_person
from console.turns.facts import EventFacts, Turn, VmFacts
from console.turns.groups import is_open
from console.turns.preparing_vms import is_ready
from console.turns.reading import Reading, has_room, waits_for_room

Refusal = Literal["not_its_turn", "cannot_prepare", "not_prepared"]
NO_KEY: Final = "the console cannot approve: SEB_CONSOLE_KEY is not set"
_NEEDS_TWO: Final = "two persons approve an event of so many VMs"
_IS_DISPUTED: Final = "the VMs that report it do not agree"
_IS_LEFT: Final = "a person left it until Azure starts it"


def refusal(event: EventFacts, reading: Reading) -> Refusal | None:
    """Return why a person may not approve an event without a turn, except by force, or None."""
    if reading.over_budget(event):
        return "not_its_turn"
    preparing = [vm for vm in reading.facts.named(event) if vm.prepares]
    if any(not vm.is_heard_or_late for vm in preparing):
        return "cannot_prepare"
    if all(vm.is_prepared(event) for vm in preparing):
        return None
    if reading.is_too_late(event) or any(vm.has_failed(event) for vm in preparing):
        return "not_prepared"
    return None


def why_for_people(event: EventFacts, reading: Reading) -> str | None:
    """Return why the console does not give the event its turn by itself, or None."""
    if not reading.facts.can_sign:
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
    if not reading.facts.groups_touched(event):
        return "no group of the settings has its VMs any more"
    return (
        why_too_large(event, reading)
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
    if bad := _why_bad_token(turn, event, reading):
        return bad
    if event.needs_two and turn.state != "approving" and not _is_by_two(turn, event):
        return _NEEDS_TWO
    if event.is_left:
        return _IS_LEFT
    return None if turn.is_overridden else _why_not_within_budget(turn, event, reading)


def _why_not_within_budget(turn: Turn, event: EventFacts, reading: Reading) -> str | None:
    """Return why an event that a person approved without force may not be approved any more, or
    None.
    """
    if turn.state == "approving":
        return None
    if turn.vm_ids - event.named and (unknown := _names_unknown_vms(event)):
        return unknown  # the VM was retired, or has another name: the person decides again
    if turn.state == "prepared":
        return None
    return why_too_large(event, reading)  # its VMs would wait, and the events behind it too


def _why_bad_token(turn: Turn, event: EventFacts, reading: Reading) -> str | None:
    """Return why a token that took the turn, or is the first of two that are needed, counts no
    more, or None. What roles persons have now is not known: theirs count as when they approved.
    """
    for actor in (turn.actor, event.first_actor if event.needs_two else None):
        if bad := reading.facts.bad_tokens.get(actor or ""):
            return f"{actor} {bad}"
    return None


def _is_by_two(turn: Turn, event: EventFacts) -> bool:
    """Check whether the person who took the turn is the second of two. The first approval may have
    ended since, as the event had changed for a moment; and the second person may have given a new
    first one.
    """
    if event.first_actor is None or turn.actor is None:
        return False
    return not is_same_person(event.first_actor, turn.actor)


def why_not_prepared(turn: Turn, reading: Reading) -> str | None:
    """Return what a turn in the state `preparing` waits for besides the programs of its VMs, or
    None.
    """
    event = reading.facts.events[turn.event_key]
    if waits_for_room(turn, event, reading):
        return why_no_room(event, reading)
    unprepared = [vm for vm in reading.facts.named(event) if not is_ready(vm, turn, event)]
    return _have_not_said(unprepared) or _take_no_commands(unprepared)


def why_not_approved_yet(turn: Turn, reading: Reading) -> str | None:
    """Return why an event whose VMs are prepared is not approved at this moment, or None."""
    event = reading.facts.events[turn.event_key]
    if not reading.facts.can_sign:
        return NO_KEY
    if turn.is_by_group and event.is_disputed:
        return _IS_DISPUTED
    if turn.is_by_group and (unheard := _not_heard(reading.facts.named(event))):
        return unheard
    return None if has_room(turn, event, reading) else why_no_room(event, reading)


def why_no_room(event: EventFacts, reading: Reading, behind: Sequence[EventKey] = ()) -> str:
    """Return which group has no room for the event; if all have, how many events it is behind."""
    full = reading.over_budget(event)
    if full:
        key = full[0]
        away = reading.away.get(key, {}).values()
        verb = "" if all(each.is_certain for each in away) else "are or may be "
        return f"{len(away)} of {key} {verb}away, and {reading.facts.groups[key].at_most} may be"
    return f"it is behind {len(behind)} other" + ("s" if len(behind) > 1 else "")


def kept_for_people(event: EventFacts) -> str | None:
    """Return why people, and not groups, decide about the event, or None."""
    if event.needs_two:
        return _NEEDS_TWO
    return _IS_LEFT if event.is_left else None


def _about_its_vms(event: EventFacts, reading: Reading) -> str | None:
    named = reading.facts.named(event)
    if undescribed := sorted(vm.name for vm in named if not vm.is_described):
        names = ", ".join(undescribed)
        return f"the console does not know yet which groups {names} belongs to"
    permanent = why_too_large(event, reading) or _names_unknown_vms(event)
    if permanent is not None:
        return permanent
    if unheard := _not_heard(named):
        return unheard
    vms = reading.facts.vms
    not_reporting = sorted(vm.name for vm in named if not event.counts_for(vm, vms))
    if not_reporting:
        return f"not reported by {', '.join(not_reporting)}"
    return _about_its_programs(named)


def _not_heard(vms: Iterable[VmFacts]) -> str | None:
    names = sorted(vm.name for vm in vms if not vm.is_heard_or_late)
    return f"the console does not hear {', '.join(names)}" if names else None


def _about_its_programs(vms: Sequence[VmFacts]) -> str | None:
    reason = _have_not_said(vms) or _take_no_commands(vms)
    if reason is None and not any(vm.takes_commands for vm in vms):
        return "no VM that it names takes commands"
    return reason


def _have_not_said(vms: Iterable[VmFacts]) -> str | None:
    names = sorted(vm.name for vm in vms if not vm.has_said)
    if not names:
        return None
    return f"the console does not know yet whether {', '.join(names)} can prepare"


def _take_no_commands(vms: Iterable[VmFacts]) -> str | None:
    names = sorted(vm.name for vm in vms if vm.prepares and not vm.takes_commands)
    return f"commands do not reach {', '.join(names)}" if names else None


def why_too_large(event: EventFacts, reading: Reading) -> str | None:
    """Return that the event names more VMs of a group than may be away, or None."""
    key = reading.group_too_small(event)
    if key is None:
        return None
    at_most = reading.facts.groups[key].at_most
    return f"it names more VMs of {key} than the {at_most} that may be away"


def _names_unknown_vms(event: EventFacts) -> str | None:
    if event.unknown_names:
        return f"the console does not know {', '.join(event.unknown_names)}"
    return None


def _about_the_event(event: EventFacts, reading: Reading) -> str | None:
    if event.is_disputed:
        return _IS_DISPUTED
    if event.ended_by is not None:
        return f"{event.ended_by} has ended its turn"
    if reading.is_too_late(event):
        return "Azure starts it too soon"
    return kept_for_people(event)


def _about_its_groups(event: EventFacts, reading: Reading) -> str | None:
    for key in reading.facts.groups_touched(event):
        settings = reading.facts.groups[key].settings
        if settings.approve is None or not settings.approve.matches(event.reported):
            return f"{key} leaves it to people"
        if not is_open(settings.window, datetime.fromtimestamp(reading.now, UTC)):
            return f"the window of {key} is closed"
    return None
