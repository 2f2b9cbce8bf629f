"""Decides what to do about turns now, from one reading of the database and the time.

Pure: it sends nothing and writes nothing. `console/approvals/turns.py` carries out what `plan`
returns, in the transaction of the reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

from console.fleet.values import EventKey
from console.turns.away import away_by_group, started_by_vm
from console.turns.groups import is_open
from console.turns.machine import Trigger
from console.turns.situation import (
    GROUP_ACTOR,
    Away,
    EventFacts,
    HeldBy,
    Holder,
    Turn,
    TurnSituation,
    VmFacts,
)

Refusal = Literal["not_its_turn", "cannot_prepare", "not_prepared"]
TOO_LATE_SECONDS: Final = 30.0
"""This long before its notBefore, an event that is not prepared is not approved any more."""
ANSWER_SECONDS: Final = 120.0
"""A VM that has not followed a command to prepare after this time will not follow it any more."""
UNANSWERED_SECONDS: Final = 300.0
"""A turn fails if a VM does not answer for this long. It is tried again after the same time."""
STUCK_SECONDS: Final = 3600.0
"""A turn is stuck if it has not ended this long after its event."""
_NEEDS_TWO: Final = "two persons approve an event of so many VMs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Why an event does not have its turn yet."""

    event_key: EventKey
    groups: tuple[str, ...]
    reason: str | None
    behind: tuple[EventKey, ...] = ()
    """Keys of the events that come before it: they hold a turn, or wait in front of it."""
    needs_people: bool = False
    """Whether it continues only if a person asks for that."""
    is_free: bool = False
    """Whether an approval by a person would be allowed now."""
    held_by: tuple[HeldBy, ...] = ()
    """The VMs that are away in its groups, without those that it names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """Gives an event its turn: its VMs are away from now on."""

    event_key: EventKey
    groups: Mapping[str, frozenset[str]]
    """The keys of the groups of each VM, by vmId."""
    actor: str
    is_forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Adds VMs to a turn that is held: the event has changed and names them now."""

    event_key: EventKey
    groups: Mapping[str, frozenset[str]]
    """The keys of the groups of each VM, by vmId."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Something happened to a turn."""

    event_key: EventKey
    trigger: Trigger
    reason: str | None = None
    actor: str | None = None
    """The new actor of its approval, if that changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Back:
    """A VM's part of a turn has ended."""

    event_key: EventKey
    vm_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that is to be done after one reading."""

    takes: tuple[Take, ...] = ()
    joins: tuple[Join, ...] = ()
    moves: tuple[Move, ...] = ()
    backs: tuple[Back, ...] = ()
    rests: tuple[Back, ...] = ()
    """VMs that are heard again and have recovered: their rest begins now."""
    prepares: tuple[tuple[EventKey, str], ...] = ()
    """Event key and vmId of each VM that is to prepare and has not reported that it has."""
    silences: frozenset[tuple[EventKey, str]] = frozenset()
    """Those of `prepares` that have reported nothing about a preparation."""
    approvals: tuple[EventKey, ...] = ()
    """Keys of the events whose VMs are prepared and within the budget now."""
    waiting: Mapping[EventKey, Waiting] = field(default_factory=dict)
    """Why each event waits, by its key."""
    free: Mapping[EventKey, bool] = field(default_factory=dict)
    """For each turn that has failed, by event key, whether a person may take it again."""


def plan(situation: TurnSituation, now: float) -> Plan:
    """Return what is to be done now."""
    away = away_by_group(situation, unsure_at=now)
    joins: list[Join] = []
    moves: list[Move] = []
    backs: list[Back] = []
    rests: list[Back] = []
    stalled: dict[EventKey, Waiting] = {}
    free: dict[EventKey, bool] = {}
    prepares: list[tuple[EventKey, str]] = []
    approvals: list[EventKey] = []
    for turn in _in_order(situation):
        if turn.is_held:
            joins += _joins(turn, situation, away)
            for each, is_over in _returns(turn, situation, away, now):
                (backs if is_over else rests).append(each)
            happened = list(_moves(turn, situation, away, now, backs))
            if not happened:
                prepares += _prepares(turn, situation, away)
            if turn.state == "failed" and not happened:
                event = situation.events[turn.event_key]
                free[turn.event_key] = refusal(event, situation, away, now) is None
            if turn.state == "preparing" and not happened:
                stalled[turn.event_key] = _still_prepares(turn, situation, away)
            if turn.state == "prepared" and not happened:
                why = _why_not_approved_yet(turn, situation, away)
                if why is None:
                    approvals.append(turn.event_key)
                else:
                    stalled[turn.event_key] = why
            moves += happened
        else:
            left = _unrecovered(turn, situation)
            joins += left
            moves += _moves_without_turn(turn, situation, is_left=bool(left))
    takes, waiting = _queue(situation, away, now)
    return Plan(
        takes=tuple(takes),
        joins=tuple(joins),
        moves=tuple(moves),
        backs=tuple(backs),
        rests=tuple(rests),
        prepares=tuple(prepares),
        silences=frozenset(each for each in prepares if _says_nothing(each, situation)),
        approvals=tuple(approvals),
        waiting={**stalled, **waiting},
        free=free,
    )


def _in_order(situation: TurnSituation) -> list[Turn]:
    """Return the turns in the order of their events. Those whose event is over come last."""
    events = situation.events
    last = (float("inf"), "")
    return sorted(
        situation.turns.values(),
        key=lambda turn: events[turn.event_key].order if turn.event_key in events else last,
    )


def groups_touched(event: EventFacts, situation: TurnSituation) -> tuple[str, ...]:
    """Return the keys of the groups of the VMs that the event names."""
    keys = {key for vm in _named(event, situation) for key in vm.groups}
    return tuple(sorted(keys & situation.groups.keys()))


def never_fits(event: EventFacts, situation: TurnSituation) -> str | None:
    """Return the key of a group that allows fewer VMs away than this one event names, or None."""
    for key in groups_touched(event, situation):
        group = situation.groups[key]
        if len(_members(event, key, situation)) > group.at_most:
            return key
    return None


def over_budget(
    event: EventFacts, situation: TurnSituation, away: Mapping[str, Mapping[str, Away]]
) -> tuple[str, ...]:
    """Return the keys of the groups in which too many would be away with the VMs of this event."""
    return tuple(
        key
        for key in groups_touched(event, situation)
        if len(away.get(key, {}).keys() | _members(event, key, situation))
        > situation.groups[key].at_most
    )


def away_besides(
    event: EventFacts, situation: TurnSituation, away: Mapping[str, Mapping[str, Away]]
) -> tuple[Away, ...]:
    """Return the VMs that are away in the groups of the event, without those that it names."""
    found = {
        each.vm_id: each
        for key in groups_touched(event, situation)
        for each in away.get(key, {}).values()
        if each.vm_id not in event.named
    }
    return tuple(found[vm_id] for vm_id in sorted(found))


def refusal(
    event: EventFacts, situation: TurnSituation, away: Mapping[str, Mapping[str, Away]], now: float
) -> Refusal | None:
    """Return why a person may not approve an event without a turn, except by force, or None."""
    if over_budget(event, situation, away):
        return "not_its_turn"
    preparing = [vm for vm in _named(event, situation) if vm.prepares]
    if any(not vm.is_heard for vm in preparing):
        return "cannot_prepare"
    unprepared = [vm for vm in preparing if not _is_prepared(vm, event)]
    if unprepared and (_is_too_late(event, now) or any(_has_failed(vm, event) for vm in preparing)):
        return "not_prepared"
    return None


def may_ask_next_vm(
    event_key: EventKey, situation: TurnSituation, now: float
) -> Literal["yes", "later", "no"]:
    """Return whether a further VM may be asked to approve an event whose approval is under way:
    `later` if the budget has no room at this moment.
    """
    event = situation.events.get(event_key)
    turn = situation.turns.get(event_key)
    if event is None:
        return "yes"
    if turn is None or not turn.is_held:  # it is over, or a person has ended it
        return "no" if groups_touched(event, situation) else "yes"
    if turn.state != "approving" or _why_no_longer_approved(turn, event, situation, now):
        return "no"
    if not turn.is_forced and not _all_prepared(turn, event, situation):
        return "no"
    away = away_by_group(situation, unsure_at=now)
    return "yes" if _has_room(turn, event, situation, away) else "later"


def _queue(
    situation: TurnSituation, away: dict[str, dict[str, Away]], now: float
) -> tuple[list[Take], dict[EventKey, Waiting]]:
    """Give turns in order. An event that waits, also for room for more of its VMs, blocks those
    after it in its groups.
    """
    takes: list[Take] = []
    waiting: dict[EventKey, Waiting] = {}
    blocked: dict[str, list[EventKey]] = {}
    for event in sorted(situation.events.values(), key=lambda each: each.order):
        turn = situation.turns.get(event.key)
        keys = groups_touched(event, situation)
        if not keys or event.status != "Scheduled":
            continue
        if turn is not None and turn.is_held:
            if turn.state == "preparing" and not event.named <= turn.vm_ids:
                for key in keys:
                    blocked.setdefault(key, []).append(event.key)
            continue
        behind = [each for key in keys for each in blocked.get(key, [])]
        reason = _for_people(event, situation, now)
        if reason is None and not over_budget(event, situation, away) and not behind:
            takes.append(_take(event, situation, keys))
            _mark_away(event, _named(event, situation), away, now)
            continue
        away_now = away_besides(event, situation, away)
        held_by = [each.event_key for each in away_now if each.event_key]
        waiting[event.key] = Waiting(
            event_key=event.key,
            groups=keys,
            reason=reason or _waits_for(event, situation, away, behind),
            behind=tuple(dict.fromkeys([*held_by, *behind])),
            needs_people=reason is not None,
            is_free=reason is not None and refusal(event, situation, away, now) is None,
            held_by=tuple(
                (each.vm_id, each.event_key)
                for each in (away_now if over_budget(event, situation, away) else ())
            ),
        )
        if reason is None:
            for key in keys:
                blocked.setdefault(key, []).append(event.key)
    return takes, waiting


def _for_people(event: EventFacts, situation: TurnSituation, now: float) -> str | None:
    """Return why the console does not give the event its turn by itself, or None."""
    if not situation.can_sign:
        return "the console cannot approve: SEB_CONSOLE_KEY is not set"
    return (
        _about_its_vms(event, situation)
        or _about_the_event(event, now)
        or _about_its_groups(event, situation, now)
    )


def _about_its_vms(event: EventFacts, situation: TurnSituation) -> str | None:
    named = _named(event, situation)
    permanent = _never_fits(event, situation) or _names_unknown_vms(event)
    if permanent is not None:
        return permanent
    silent = sorted(vm.name for vm in named if not vm.is_heard)
    if silent:
        return f"the console does not hear {', '.join(silent)}"
    not_reporting = sorted(vm.name for vm in named if not event.counts_for(vm, situation.vms))
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


def _never_fits(event: EventFacts, situation: TurnSituation) -> str | None:
    full = never_fits(event, situation)
    if full is None:
        return None
    at_most = situation.groups[full].at_most
    return f"it names more VMs of {full} than the {at_most} that may be away"


def _names_unknown_vms(event: EventFacts) -> str | None:
    if event.unknown_names:
        return f"the console does not know {', '.join(event.unknown_names)}"
    return None


def _about_the_event(event: EventFacts, now: float) -> str | None:
    if event.is_disputed:
        return "the VMs that report it do not agree"
    if event.ended_by is not None:
        return f"{event.ended_by} has ended its turn"
    if _is_too_late(event, now):
        return "Azure starts it too soon"
    return _kept_for_people(event)


def _kept_for_people(event: EventFacts) -> str | None:
    if event.needs_two:
        return _NEEDS_TWO
    if event.is_left:
        return "a person left it until Azure starts it"
    return None


def _about_its_groups(event: EventFacts, situation: TurnSituation, now: float) -> str | None:
    for key in groups_touched(event, situation):
        rule = situation.groups[key].rule
        if rule.approve is None or not rule.approve.matches(event.reported):
            return f"{key} leaves it to people"
        if not is_open(rule.window, datetime.fromtimestamp(now, UTC)):
            return f"the window of {key} is closed"
    return None


def _waits_for(
    event: EventFacts,
    situation: TurnSituation,
    away: Mapping[str, Mapping[str, Away]],
    behind: list[EventKey],
) -> str:
    full = over_budget(event, situation, away)
    if full:
        key = full[0]
        count = len(away.get(key, {}))
        return f"{count} of {key} away, and {situation.groups[key].at_most} may be"
    return f"it is behind {len(behind)} other" + ("s" if len(behind) > 1 else "")


def _take(event: EventFacts, situation: TurnSituation, keys: tuple[str, ...]) -> Take:
    first = situation.groups[keys[0]].rule.name
    return Take(
        event_key=event.key,
        groups={vm.vm_id: vm.groups for vm in _named(event, situation)},
        actor=f"{GROUP_ACTOR}{first}",
    )


def _moves(
    turn: Turn,
    situation: TurnSituation,
    away: dict[str, dict[str, Away]],
    now: float,
    backs: list[Back],
) -> Iterator[Move]:
    """Yield what happened to a turn that is held."""
    event = situation.events.get(turn.event_key)
    if turn.state in ("away", "stuck"):
        yield from _while_away(turn, event, situation, now, backs)
    elif event is None:
        yield Move(event_key=turn.event_key, trigger="gone")
    elif event.status != "Scheduled":
        yield Move(event_key=turn.event_key, trigger="started")
    elif event.fingerprint != turn.fingerprint:
        yield _changed(turn, event, situation, now, "changed")
    elif turn.state in ("preparing", "prepared") and (
        reason := _why_no_longer_approved(turn, event, situation, now)
    ):
        yield Move(event_key=turn.event_key, trigger="not_prepared", reason=reason)
    elif turn.state == "preparing":
        yield from _while_preparing(turn, event, situation, now)
    elif turn.state == "prepared":
        yield from _while_prepared(turn, event, situation, now)
    elif turn.state == "approving" and event.approval in (None, "failed"):
        reason = _kept_for_people(event) or "its approval failed"
        yield Move(event_key=turn.event_key, trigger="not_approved", reason=reason)
    elif turn.state == "failed" and _may_retry(turn, event, situation, away, now):
        _mark_away(event, _named(event, situation), away, now)
        actor = _take(event, situation, groups_touched(event, situation)).actor
        yield Move(event_key=turn.event_key, trigger="taken", actor=actor)


def _changed(
    turn: Turn, event: EventFacts, situation: TurnSituation, now: float, trigger: Trigger
) -> Move:
    """Return what a new state of the event means for its turn. A person approves one state of the
    event: after a change the turn continues only if its groups approve the new state by themselves.
    """
    key = turn.event_key
    is_by_person = turn.by is not None and not turn.is_by_group
    if event.fingerprint == turn.fingerprint and is_by_person:
        return Move(event_key=key, trigger=trigger)
    reason = _why_not_by_groups(event, situation, now)
    if reason is None:
        actor = _take(event, situation, groups_touched(event, situation)).actor
        return Move(event_key=key, trigger=trigger, actor=actor)
    if is_by_person:
        reason = f"it changed since {turn.by} approved it"
    return Move(event_key=key, trigger="outdated", reason=reason)


def _may_retry(
    turn: Turn,
    event: EventFacts,
    situation: TurnSituation,
    away: Mapping[str, Mapping[str, Away]],
    now: float,
) -> bool:
    """Check whether the turn of a group, which has failed, may be taken again.

    Its cause must have passed: its window is open again; or no VM has followed the approval, and
    none can any more; or a VM that did not answer may answer now. A VM that could not prepare is
    left to people.
    """
    if not turn.is_by_group or _is_too_late(event, now) or over_budget(event, situation, away):
        return False
    was_unanswered = any(each.asked_at is not None for each in turn.holders)
    if was_unanswered and now - turn.since < UNANSWERED_SECONDS:
        return False
    if event.approval is not None and (event.again_at is None or now < event.again_at):
        return False
    has_failed = any(_has_failed(vm, event) for vm in _preparing(turn, event, situation))
    return not has_failed and _why_not_by_groups(event, situation, now) is None


def _why_no_longer_approved(
    turn: Turn, event: EventFacts, situation: TurnSituation, now: float
) -> str | None:
    """Return why an event whose VMs prepare, or are prepared, may not be approved any more, or
    None.
    """
    if turn.is_by_group:
        return _why_not_by_groups(event, situation, now)
    if event.needs_two and not event.has_first and turn.state != "approving":
        return _NEEDS_TWO  # the first approval has ended: the event had changed for a moment
    if event.is_left:
        return "a person left it until Azure starts it"
    if turn.is_forced or turn.state != "preparing":
        return None
    return _never_fits(event, situation)  # its VMs would wait, and the events behind it too


def _why_not_by_groups(event: EventFacts, situation: TurnSituation, now: float) -> str | None:
    """Return why groups do not approve the event by themselves, or None: also for a cause that may
    pass in a moment.
    """
    if not groups_touched(event, situation):
        return "no group of the settings has its VMs any more"
    return (
        _never_fits(event, situation)
        or _names_unknown_vms(event)
        or _kept_for_people(event)
        or _about_its_groups(event, situation, now)
    )


def _while_away(
    turn: Turn, event: EventFacts | None, situation: TurnSituation, now: float, backs: list[Back]
) -> Iterator[Move]:
    came = {each.vm_id for each in backs if each.event_key == turn.event_key}
    if event is not None and event.status != "Scheduled":
        if turn.over_at is not None:  # a document left it out: it is not over yet
            yield Move(event_key=turn.event_key, trigger="started")
    elif event is not None:
        if turn.by is None:
            yield Move(event_key=turn.event_key, trigger="returned_untaken")
        else:
            yield _changed(turn, event, situation, now, "returned")
    elif turn.over_at is None:
        yield Move(event_key=turn.event_key, trigger="gone")
    elif all(each.vm_id in came for each in turn.still_away):
        yield Move(event_key=turn.event_key, trigger="all_back")
    elif now - turn.over_at >= STUCK_SECONDS:
        yield Move(event_key=turn.event_key, trigger="hour_passed")


def _while_preparing(
    turn: Turn, event: EventFacts, situation: TurnSituation, now: float
) -> Iterator[Move]:
    preparing = _preparing(turn, event, situation)
    failed = sorted(vm.name for vm in preparing if _has_failed(vm, event))
    if failed:
        reason = f"{', '.join(failed)} could not prepare"
        yield Move(event_key=turn.event_key, trigger="not_prepared", reason=reason)
    elif _all_prepared(turn, event, situation):
        yield Move(event_key=turn.event_key, trigger="all_prepared")
    elif unanswered := _unanswered(turn, event, situation, now):
        reason = f"{', '.join(unanswered)} did not answer"
        yield Move(event_key=turn.event_key, trigger="not_prepared", reason=reason)
    elif _is_too_late(event, now):
        late = sorted(vm.name for vm in _named(event, situation) if not _is_ready(vm, turn, event))
        reason = f"{', '.join(late)} did not prepare in time"
        yield Move(event_key=turn.event_key, trigger="not_prepared", reason=reason)


def _while_prepared(
    turn: Turn, event: EventFacts, situation: TurnSituation, now: float
) -> Iterator[Move]:
    if not _all_prepared(turn, event, situation):
        yield Move(event_key=turn.event_key, trigger="unprepared")
    elif _is_too_late(event, now) and turn.is_by_group:
        yield Move(event_key=turn.event_key, trigger="not_prepared", reason="no time was left")


def _preparing(turn: Turn, event: EventFacts, situation: TurnSituation) -> list[VmFacts]:
    """Return the VMs whose preparation the event waits for. A person who overrides the budget does
    not wait for a VM that the console does not hear.
    """
    named = _named(event, situation)
    return [vm for vm in named if vm.prepares and (vm.is_heard or not turn.is_forced)]


def _all_prepared(turn: Turn, event: EventFacts, situation: TurnSituation) -> bool:
    """Check whether every VM that the event names holds the turn and is prepared now."""
    is_whole = event.named <= turn.vm_ids
    is_known = all(vm.has_said for vm in _named(event, situation) if vm.is_heard)
    ready = all(_is_prepared(vm, event) for vm in _preparing(turn, event, situation))
    return is_whole and is_known and ready


def _unanswered(turn: Turn, event: EventFacts, situation: TurnSituation, now: float) -> list[str]:
    """Return the names of the VMs that have been asked for long and report nothing of a
    preparation.
    """
    names = []
    for each in turn.still_away:
        vm = situation.vms.get(each.vm_id)
        if vm is None or each.asked_at is None or now - each.asked_at < UNANSWERED_SECONDS:
            continue
        if each.vm_id in event.named and _says_nothing((turn.event_key, each.vm_id), situation):
            names.append(vm.name)
    return sorted(names)


def _says_nothing(asked: tuple[EventKey, str], situation: TurnSituation) -> bool:
    """Check whether a VM that is asked to prepare has reported nothing about that."""
    event = situation.events[asked[0]]
    vm = situation.vms[asked[1]]
    said = vm.preparation(event.key)
    return said is None or said.fingerprint != event.fingerprint or said.state == "recovered"


def _unrecovered(turn: Turn, situation: TurnSituation) -> list[Join]:
    """Return the VMs that have prepared for an event without a turn and have not recovered."""
    if turn.event_key in situation.events:
        return []
    left = {
        vm.vm_id: vm.groups
        for vm in situation.vms.values()
        if vm.groups and vm.preparation(turn.event_key) and not _has_recovered(vm, turn)
    }
    return [Join(event_key=turn.event_key, groups=left)] if left else []


def _moves_without_turn(turn: Turn, situation: TurnSituation, *, is_left: bool) -> Iterator[Move]:
    """Yield what happened to an event that waits, or that runs without a turn. `is_left`: a VM has
    prepared for it and has not recovered.
    """
    event = situation.events.get(turn.event_key)
    if event is None:
        yield Move(event_key=turn.event_key, trigger="unrecovered" if is_left else "gone")
    elif not groups_touched(event, situation):
        yield Move(event_key=turn.event_key, trigger="ungrouped")
    elif event.fingerprint != turn.fingerprint:
        yield Move(event_key=turn.event_key, trigger="changed")
    elif turn.state == "waiting" and event.status != "Scheduled":
        reason = "Azure started it before its turn"
        yield Move(event_key=turn.event_key, trigger="started", reason=reason)
    elif turn.state == "waiting" and (key := never_fits(event, situation)) is not None:
        reason = f"it names more VMs of {key} than may be away"
        yield Move(event_key=turn.event_key, trigger="never_fits", reason=reason)


def _prepares(
    turn: Turn, situation: TurnSituation, away: Mapping[str, Mapping[str, Away]]
) -> Iterator[tuple[EventKey, str]]:
    """Yield the VMs that are to prepare: none while VMs that went away after the turn was taken
    fill the budget.
    """
    event = situation.events.get(turn.event_key)
    if turn.state != "preparing" or event is None or event.fingerprint != turn.fingerprint:
        return
    if not turn.is_forced and over_budget(event, situation, away):
        return
    for vm in _named(event, situation):
        if vm.vm_id in turn.vm_ids and vm.prepares and vm.is_heard and not _is_prepared(vm, event):
            yield turn.event_key, vm.vm_id


def _joins(
    turn: Turn, situation: TurnSituation, away: dict[str, dict[str, Away]]
) -> Iterator[Join]:
    """Yield the VMs that a changed event names and that hold no turn yet, if the budget
    has room.
    """
    event = situation.events.get(turn.event_key)
    if turn.state != "preparing" or event is None or event.fingerprint != turn.fingerprint:
        return
    new = [vm for vm in _named(event, situation) if vm.vm_id not in turn.vm_ids]
    if not new or (not turn.is_forced and over_budget(event, situation, away)):
        return
    _mark_away(event, new, away, turn.since)
    yield Join(event_key=turn.event_key, groups={vm.vm_id: vm.groups for vm in new})


def _mark_away(
    event: EventFacts, vms: Iterable[VmFacts], away: dict[str, dict[str, Away]], since: float
) -> None:
    for vm in vms:
        gone = Away(vm_id=vm.vm_id, why="turn", since=since, event_key=event.key)
        for key in vm.groups:
            away.setdefault(key, {}).setdefault(vm.vm_id, gone)


def _is_ready(vm: VmFacts, turn: Turn, event: EventFacts) -> bool:
    is_prepared = _prepares_nothing(vm) or not vm.is_heard
    return vm.vm_id in turn.vm_ids and (_is_prepared(vm, event) if vm.prepares else is_prepared)


def _is_prepared(vm: VmFacts, event: EventFacts) -> bool:
    """Check whether the VM reported that it is prepared for this state of the event."""
    said = vm.preparation(event.key)
    return said is not None and said.state == "prepared" and said.fingerprint == event.fingerprint


def _has_failed(vm: VmFacts, event: EventFacts) -> bool:
    """Check whether the VM reported that it could not prepare for this state of the event."""
    said = vm.preparation(event.key)
    return said is not None and said.state == "failed" and said.fingerprint == event.fingerprint


def _is_too_late(event: EventFacts, now: float) -> bool:
    return event.not_before is not None and event.not_before - now < TOO_LATE_SECONDS


def _why_not_approved_yet(
    turn: Turn, situation: TurnSituation, away: Mapping[str, Mapping[str, Away]]
) -> Waiting | None:
    """Return why an event whose VMs are prepared is not approved at this moment, or None."""
    event = situation.events[turn.event_key]
    reason = None
    if turn.is_by_group and event.is_disputed:
        reason = "the VMs that report it do not agree"
    elif not _has_room(turn, event, situation, away):
        reason = _waits_for(event, situation, away, [])
    if reason is None:
        return None
    return Waiting(event_key=turn.event_key, groups=turn.groups, reason=reason)


def _has_room(
    turn: Turn,
    event: EventFacts,
    situation: TurnSituation,
    away: Mapping[str, Mapping[str, Away]],
) -> bool:
    """Check whether an event whose VMs are prepared may be approved, with the VMs that are away.

    If a group has become too small for its turns, and all of these are prepared, they do not wait
    for each other: their VMs are away already, and come back one after the other.
    """
    return turn.is_forced or all(
        _waits_behind(other, event, situation)
        for key in over_budget(event, situation, away)
        for other in away.get(key, {}).values()
        if other.vm_id not in event.named
    )


def _waits_behind(other: Away, event: EventFacts, situation: TurnSituation) -> bool:
    """Check whether a VM that counts as away is heard, and waits, prepared, for events that come
    later, and for nothing else.
    """
    vm = situation.vms.get(other.vm_id)
    if vm is None or not vm.is_heard or vm.vm_id in started_by_vm(situation):
        return False
    turns = [each for each in situation.turns.values() if each.is_held and vm.vm_id in each.vm_ids]
    return bool(turns) and all(_is_prepared_after(each, event, situation) for each in turns)


def _is_prepared_after(turn: Turn, event: EventFacts, situation: TurnSituation) -> bool:
    """Check whether the VMs of a turn are prepared for an event that comes later than this one."""
    own = situation.events.get(turn.event_key)
    if turn.state != "prepared" or turn.is_forced:
        return False
    return own is not None and own.order > event.order


def _still_prepares(
    turn: Turn, situation: TurnSituation, away: Mapping[str, Mapping[str, Away]]
) -> Waiting:
    """Return what an event waits for besides the programs of its VMs."""
    event = situation.events[turn.event_key]
    unprepared = [vm for vm in _named(event, situation) if not _is_ready(vm, turn, event)]
    without_commands = sorted(vm.name for vm in unprepared if vm.prepares and not vm.takes_commands)
    not_said = sorted(vm.name for vm in unprepared if vm.is_heard and not vm.has_said)
    reason = f"{', '.join(without_commands)} takes no commands" if without_commands else None
    if not_said:
        reason = f"{', '.join(not_said)} has not said yet whether it prepares"
    if not turn.is_forced and over_budget(event, situation, away):
        reason = _waits_for(event, situation, away, [])
    return Waiting(event_key=turn.event_key, groups=turn.groups, reason=reason)


def _returns(
    turn: Turn, situation: TurnSituation, away: Mapping[str, Mapping[str, Away]], now: float
) -> Iterator[tuple[Back, bool]]:
    """Yield the VMs of a turn that are no longer away, each with whether its rest is over. While a
    VM may still follow a command, yield nothing: the event could come back.
    """
    if now < situation.followed_until.get(turn.event_key, 0.0):
        return
    for holder in turn.still_away:
        if holder.vm_id not in situation.vms:  # retired: no longer a member
            yield Back(event_key=turn.event_key, vm_id=holder.vm_id), True
    yield from _back(turn, situation, now)
    yield from _freed(turn, situation, away, now)
    yield from _unnamed(turn, situation, now)


def _unnamed(turn: Turn, situation: TurnSituation, now: float) -> Iterator[tuple[Back, bool]]:
    """Yield the VMs that a changed event no longer names and that are not away, each with whether
    its rest is over: they have recovered, or have prepared nothing until the last command expired.
    """
    event = situation.events.get(turn.event_key)
    if turn.state not in ("preparing", "failed") or event is None:
        return
    for holder in turn.still_away:
        vm = situation.vms.get(holder.vm_id)
        if holder.vm_id in event.named or vm is None or not vm.is_heard:
            continue
        if vm.preparation(event.key) is not None:
            if _has_recovered(vm, turn):
                yield from _rested(holder, turn, situation, now)
        elif not vm.prepares or vm.heard_at >= turn.since + ANSWER_SECONDS:
            yield Back(event_key=turn.event_key, vm_id=holder.vm_id), True


def _freed(
    turn: Turn, situation: TurnSituation, away: Mapping[str, Mapping[str, Away]], now: float
) -> Iterator[tuple[Back, bool]]:
    """Yield the VMs that may leave a turn early, because it has failed or because there is no room
    for its VMs any more: turns must not wait for each other. Each of them has recovered, or has
    prepared nothing and follows no command any more; it comes with whether its rest is over.
    """
    event = situation.events.get(turn.event_key)
    if event is None or event.status != "Scheduled":
        return
    if turn.state != "failed" and not _waits_for_room(turn, event, situation, away):
        return
    if event.may_begin or event.approval in ("open", "confirmed"):
        return
    for holder in turn.still_away:
        vm = situation.vms.get(holder.vm_id)
        if vm is None or not vm.is_heard or not _has_recovered(vm, turn):
            continue
        if turn.state == "failed" and vm.heard_at < turn.since:
            continue  # Azure may have taken it by an approval whose answer never came
        if vm.preparation(turn.event_key) is None:
            if _prepares_nothing(vm) or vm.heard_at >= turn.since + ANSWER_SECONDS:
                yield Back(event_key=turn.event_key, vm_id=holder.vm_id), True
        else:
            yield from _rested(holder, turn, situation, now)


def _waits_for_room(
    turn: Turn,
    event: EventFacts,
    situation: TurnSituation,
    away: Mapping[str, Mapping[str, Away]],
) -> bool:
    """Check whether no VM of a turn may prepare now: the budget is full."""
    if turn.state != "preparing" or event.fingerprint != turn.fingerprint:
        return False
    return not turn.is_forced and bool(over_budget(event, situation, away))


def _back(turn: Turn, situation: TurnSituation, now: float) -> Iterator[tuple[Back, bool]]:
    """Yield the VMs that were heard after the end of their event and have recovered, each with
    whether its rest is over.
    """
    if turn.event_key in situation.events or turn.over_at is None:
        return
    for holder in turn.still_away:
        vm = situation.vms.get(holder.vm_id)
        if vm is None or not vm.is_heard:
            continue
        if vm.heard_at >= turn.over_at and _has_recovered(vm, turn):
            yield from _rested(holder, turn, situation, now)


def _rested(
    holder: Holder, turn: Turn, situation: TurnSituation, now: float
) -> Iterator[tuple[Back, bool]]:
    """Yield a VM that has recovered, with whether its rest is over; if not, its rest begins now."""
    back = Back(event_key=turn.event_key, vm_id=holder.vm_id)
    since = now if holder.ready_at is None else holder.ready_at
    if now - since >= _rest(holder.groups, situation):
        yield back, True
    elif holder.ready_at is None:
        yield back, False


def _prepares_nothing(vm: VmFacts) -> bool:
    """Check whether the VM has reported that it does not prepare."""
    return vm.has_said and not vm.prepares


def _has_recovered(vm: VmFacts, turn: Turn) -> bool:
    said = vm.preparation(turn.event_key)
    return said is None or said.state == "recovered" or vm.has_no_program


def _rest(keys: frozenset[str], situation: TurnSituation) -> float:
    """Return the longest rest of these groups, in seconds."""
    return max((g.rule.rest for key in keys if (g := situation.groups.get(key))), default=0.0)


def _members(event: EventFacts, key: str, situation: TurnSituation) -> set[str]:
    """Return the vmIds of the VMs that the event names and that belong to the group."""
    return {vm.vm_id for vm in _named(event, situation) if key in vm.groups}


def _named(event: EventFacts, situation: TurnSituation) -> list[VmFacts]:
    return [situation.vms[vm_id] for vm_id in sorted(event.named) if vm_id in situation.vms]
