"""A model of turns over time: VMs, lost and late messages, Azure, and one oracle on the VMs' side.

The console sees only what VMs reported, late and in part. The oracle counts on the VMs themselves
who is away because the console asked: never more of a group than it allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.console.reported_event import reported

from console.config.groups import GroupSettings
from console.fleet.values.keys import EventKey
from console.turns.changed_turns import after_condition
from console.turns.facts import EventFacts, Turn, TurnFacts, VmFacts, VmPreparation
from console.turns.groups import Member, groups_of, keys_of
from console.turns.plan import plan
from console.turns.transitions import Occurrence, TurnCondition


def rules(at_most: int) -> tuple[GroupSettings, ...]:
    """Return the settings: so many VMs may be away of all, and one of each zone."""
    return (
        GroupSettings.model_validate({"name": "all", "at_most": at_most, "approve": {}}),
        GroupSettings.model_validate({"name": "zone", "by": ["zone"], "approve": {}}),
    )


MEMBERS = {f"v{n}": Member(vm_id=f"v{n}", name=f"db-{n}", zone=str(n % 2 + 1)) for n in range(1, 6)}
GROUPS = {at_most: groups_of(rules(at_most), MEMBERS.values()) for at_most in (1, 2)}
"""The groups by the number of VMs that the settings allow."""
KEYS = {vm_id: keys_of(rules(2), member) for vm_id, member in MEMBERS.items()}
MEMBERS_OF = {key: {vm_id for vm_id in MEMBERS if key in KEYS[vm_id]} for key in GROUPS[2]}
WITHOUT_PROGRAM = "v5"
"""The VM that prepares nothing."""
SILENT_AFTER = 180.0
NOTICE = 900.0
LIFE = 60.0
"""The lifetime of a command, in seconds."""
DAY = 86_400.0
PATIENCE = 40
"""Rounds of 25 seconds without an event that is over, after which the first one has to wait for VMs
that are really away.
"""
CLOCK = 5.0
"""Seconds by which the clocks of consoles differ from the model's."""

vm_ids = st.sampled_from(sorted(MEMBERS))
EVENTS = [EventKey(f"e{number}", "") for number in range(1, 5)]
event_keys = st.sampled_from(EVENTS)
places = st.integers(0, 3)
"""Which one of the events that are there, or of the VMs that have commands."""


def has_events(model: TurnsModel) -> bool:
    """Check whether documents name an event."""
    return bool(model.events)


def has_commands(model: TurnsModel) -> bool:
    """Check whether a command is on its way."""
    return any(vm.inbox for vm in model.vms.values())


def _is_taken(before: Turn | None, after: Turn) -> bool:
    """Check whether a step has given an event its turn, has continued a failed one, or has added
    VMs to one.
    """
    if after.state != "preparing":
        return False
    if before is None or not before.is_held:
        return True
    if before.state == "preparing":
        return bool(after.vm_ids - before.vm_ids)
    return before.state == "failed" and before.fingerprint == after.fingerprint


@dataclass(slots=True, kw_only=True)
class ModelVm:
    """One VM as it really is."""

    vm_id: str
    is_up: bool = True
    preparations: dict[EventKey, VmPreparation] = field(default_factory=dict)
    by_us: set[EventKey] = field(default_factory=set)
    """Events for which the console sent it away, until it is really back."""
    inbox: list[tuple[str, EventKey, str, float]] = field(default_factory=list)
    """Commands on their way: act, event, fingerprint, and when they expire."""
    answers: set[tuple[str, EventKey]] = field(default_factory=set)
    """Act and event of the commands that it has followed, and not told so."""


@dataclass(slots=True, kw_only=True)
class ModelEvent:
    """One event as Azure has it."""

    key: EventKey
    named: frozenset[str]
    not_before: float
    revision: int = 1
    status: str = "Scheduled"

    @property
    def fingerprint(self) -> str:
        return f"{self.key.event_id}-{self.not_before}-{self.revision}"


class TurnsModel(RuleBasedStateMachine):
    """Any order of announcements, starts, ends, losses, delays, crashes and steps of consoles."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000.0
        self.vms = {vm_id: ModelVm(vm_id=vm_id) for vm_id in MEMBERS}
        self.events: dict[EventKey, ModelEvent] = {}
        self.turns: dict[EventKey, Turn] = {}
        # What the console knows: rows that its sources brought.
        self.heard_at = dict.fromkeys(MEMBERS, self.now)
        self.known: dict[str, dict[EventKey, VmPreparation]] = {vm_id: {} for vm_id in MEMBERS}
        self.shown: dict[EventKey, EventFacts] = {}
        self.unanswered: dict[tuple[str, str, EventKey], float] = {}
        """When commands expire that no answer has come to, by vmId, act and event."""
        self.missing: dict[EventKey, ModelEvent] = {}
        """Events that documents do not name at the moment."""
        self.ended_at: dict[EventKey, float] = {}
        """When the console came to know of the end of an event."""
        self.approvals: dict[EventKey, tuple[str, float]] = {}
        """The newest approval of each event: of which fingerprint, and until when it is open."""
        self.at_most = 2
        """Of all VMs."""
        self.may_be_away = 2
        """How many of all VMs hold turns, or may be away, since the settings allowed more."""

    @initialize(
        several=st.lists(st.sets(vm_ids, min_size=1, max_size=2), min_size=2, max_size=4),
        place=places,
        is_overtaken=st.booleans(),
    )
    def begin(self, several: list[set[str]], place: int, *, is_overtaken: bool) -> None:
        """Announce some events, which the VMs report; one may be overtaken."""
        for key, named in zip(EVENTS, several, strict=False):
            self.announce(key=key, named=named)
        self.quiet_seconds(steps=2, reports=True, receives=False)
        if is_overtaken:
            self.overtake(place=place, other=place, is_lost=False)

    @rule(key=event_keys, named=st.sets(vm_ids, min_size=1, max_size=2))
    def announce(self, key: EventKey, named: set[str]) -> None:
        """Announce an event."""
        if key not in self.events and key not in self.missing:
            self.events[key] = ModelEvent(
                key=key, named=frozenset(named), not_before=self.now + NOTICE
            )

    @precondition(has_events)
    @rule(place=places, named=st.none() | st.sets(vm_ids, min_size=1, max_size=2))
    def change(self, place: int, named: set[str] | None) -> None:
        """Change an event that has not begun; it may name other VMs."""
        event = self.events[self._there(place)]
        if event.status == "Scheduled":
            event.revision += 1
            event.not_before = self.now + NOTICE
            event.named = event.named if named is None else frozenset(named)

    @precondition(has_events)
    @rule(place=places)
    def start(self, place: int) -> None:
        """Start an event at its time, whoever was asked."""
        event = self.events[self._there(place)]
        if event.status == "Scheduled" and self.now >= event.not_before:
            self._begin(event)

    def start_early(self, key: EventKey) -> None:
        """Start an event before its time; its VMs report that before they go."""
        event = self.events[key]
        event.status = "Started"
        for vm_id in event.named:
            self.report(vm_id)
        self._begin(event)

    def follow_all(self) -> None:
        """Have every VM follow its commands and report that; the console has not looked yet."""
        for vm_id, vm in self.vms.items():
            for _ in range(len(vm.inbox)):
                self.receive(vm_id, works=True)
            self.report(vm_id)

    @precondition(lambda self: has_commands(self) and has_events(self))
    @rule(place=places, other=places, is_lost=st.booleans())
    def overtake(self, place: int, other: int, *, is_lost: bool) -> None:
        """Start an event while another one is prepared, whose VMs may be made again while
        it waits.
        """
        first = self._asked(place)
        others = [key for key in sorted(self.events) if key not in self._asked_for()]
        self.follow_all()
        second = others[other % len(others)] if others else first
        if second == first or self.events[second].status != "Scheduled":
            return
        self.start_early(second)
        self.quiet_seconds(steps=2, reports=True, receives=False)
        for vm_id in self.events[first].named if is_lost else ():
            self.lose_store(vm_id)
        self.end(sorted(self.events).index(second))
        for vm_id in MEMBERS:
            self.come_back(vm_id)
        self.quiet_seconds(steps=2, reports=True, receives=False)

    @precondition(lambda self: has_commands(self) and has_events(self))
    @rule(place=places, is_lost=st.booleans())
    def crash_beside(self, place: int, *, is_lost: bool) -> None:
        """Crash two VMs while an event that names others is prepared; they come back later."""
        named = self.events[self._asked(place)].named
        self.follow_all()
        crashed = sorted(MEMBERS.keys() - named)[:2]
        for vm_id in crashed:
            self.crash(vm_id)
        self.now += SILENT_AFTER + CLOCK + 1
        self.quiet_seconds(steps=2, reports=True, receives=False)
        for vm_id in named if is_lost else ():
            self.lose_store(vm_id)
        for vm_id in crashed:
            self.vms[vm_id].is_up = True
        self.quiet_seconds(steps=2, reports=True, receives=False)

    @precondition(has_commands)
    @rule(rounds=st.sampled_from([7, 14]))
    def get_no_commands(self, rounds: int) -> None:
        """Let no command reach a VM for some minutes, though all are heard."""
        for _ in range(rounds):
            self.now += 50.0
            for vm_id, vm in self.vms.items():
                vm.inbox = [each for each in vm.inbox if each[3] > self.now]
                self.report(vm_id)
            self.step(dies=False, skew=0.0)

    @precondition(has_events)
    @rule(place=places)
    def go_missing(self, place: int) -> None:
        """Have documents leave an event out, which is over for its VMs until it comes back
        unchanged.
        """
        key = self._there(place)
        self.missing[key] = self.events.pop(key)
        for vm in self.vms.values():
            if key in vm.preparations:
                vm.preparations[key] = replace(vm.preparations[key], fingerprint="")

    @precondition(lambda self: self.missing)
    @rule(key=event_keys)
    def come_again(self, key: EventKey) -> None:
        """Have documents name an event again."""
        if key in self.missing:
            self.events[key] = self.missing.pop(key)

    @precondition(has_events)
    @rule(place=places, receives=st.booleans())
    def flicker(self, place: int, receives: bool) -> None:
        """Have a few documents leave an event out; what was sent comes before or after that."""
        key = self._there(place)
        self.go_missing(place)
        self.quiet_seconds(steps=4, reports=True, receives=receives)
        self.come_again(key)
        self.quiet_seconds(steps=2, reports=True, receives=True)

    @precondition(has_events)
    @rule(place=places, recovers=st.booleans(), is_late=st.booleans())
    def pass_by(self, place: int, *, recovers: bool, is_late: bool) -> None:
        """End an event; its VMs may be heard later than that, and recover after some time."""
        named = self.events[self._there(place)].named
        self.end(place)
        for vm_id in named if is_late else ():
            self.crash(vm_id)
        self.quiet_seconds(steps=3 if is_late else 0, reports=True, receives=False)
        for vm_id in named:
            self.vms[vm_id].is_up = True
        for vm_id in named if recovers else ():
            self.come_back(vm_id)
        self.quiet_seconds(steps=3, reports=True, receives=True)

    @precondition(has_events)
    @rule(place=places)
    def blink(self, place: int) -> None:
        """Have a document leave out an event that has started. Its VMs, which were heard then, go
        after that, and come back later than peers report the end.
        """
        key = self._there(place)
        event = self.events[key]
        if event.status != "Started":
            return
        sent = [vm_id for vm_id in sorted(event.named) if key in self.vms[vm_id].by_us]
        for vm_id in event.named:
            self.vms[vm_id].is_up = True
            self.report(vm_id)
        self.go_missing(place)
        for vm_id in event.named:
            self.come_back(vm_id)
        self.quiet_seconds(steps=1, reports=True, receives=False)
        self.come_again(key)
        for vm_id in event.named:
            self.report(vm_id)
        self.step(dies=False, skew=0.0)
        if key in self.turns and self.turns[key].is_held:
            for vm_id in sent:
                self.vms[vm_id].by_us.add(key)
        for vm_id in event.named:
            self.crash(vm_id)
        self.now += SILENT_AFTER / 2
        self.quiet_seconds(steps=1, reports=True, receives=True)
        self.end(place)
        for vm_id in event.named:
            self.crash(vm_id)
        self.quiet_seconds(steps=3, reports=True, receives=True)

    @rule(at_most=st.sampled_from([1, 2]))
    def allow(self, at_most: int) -> None:
        """Begin a run of the console with other settings."""
        self.at_most = at_most
        self._count_budget()

    @precondition(lambda self: len(self.events) > 1)
    @rule(is_last=st.booleans())
    def shrink(self, *, is_last: bool) -> None:
        """Let VMs follow their commands or not; then allow fewer to be away, and have Azure move
        every event.
        """
        self.follow_all()
        self.allow(at_most=1)
        for place in range(len(self.events)):
            self.change(place=place, named=None)
        self.quiet_seconds(steps=2, reports=True, receives=False)
        if is_last:
            self.go_on()

    @precondition(has_events)
    @rule()
    def go_on(self) -> None:
        """Let all go well for a day: each event has its turn, unless VMs that are really away leave
        no room for the first one.
        """
        for key in sorted(self.missing):
            self.come_again(key)
        for event in self.events.values():
            if event.status == "Scheduled":
                event.revision += 1
                event.not_before = self.now + DAY
        waited = 0
        while self.events:
            before = len(self.events)
            self._round()
            waited = waited + 1 if len(self.events) == before else 0
            if waited > PATIENCE:
                self._leave_first_to_azure()
                waited = 0

    def _round(self) -> None:
        """Let some seconds pass in which every VM does what it can and is heard."""
        self.now += 25.0
        for event in [each for each in self.events.values() if each.status == "Started"]:
            self.end(sorted(self.events).index(event.key))
        for vm_id, vm in self.vms.items():
            vm.is_up = True
            for _ in range(len(vm.inbox)):
                self.receive(vm_id, works=True)
            self.come_back(vm_id)
        for vm_id in MEMBERS:
            self.report(vm_id)
        self.step(dies=False, skew=0.0)

    def _leave_first_to_azure(self) -> None:
        """Start the first event, for which VMs that have prepared leave no room."""
        first = min(self.events.values(), key=lambda each: (each.not_before, each.key))
        gone = {
            vm_id
            for vm_id, vm in self.vms.items()
            if any(said.state != "recovered" for said in vm.preparations.values())
        }
        is_full = False
        turn = self.turns.get(first.key)
        # It sends nobody away who is not away already, and the others wait behind it.
        is_first = turn is not None and turn.is_held and first.named <= gone
        for group, each in GROUPS[self.at_most].items():
            members = MEMBERS_OF[group]
            away = members & (gone | first.named)
            others = away - first.named
            fits = len(members & first.named) <= each.at_most
            waits = not is_first or not all(self._holds_turns(vm_id) for vm_id in others)
            has_members = bool(members & first.named)
            is_full |= has_members and len(away) > each.at_most and (waits or not fits)
        assert is_full, f"{first.key} waits for {self.turns}"
        self._begin(first)

    def _holds_turns(self, vm_id: str) -> bool:
        """Check whether a VM holds a turn for each event that it has prepared for."""
        held = {key for key, turn in self.turns.items() if turn.is_held and vm_id in turn.vm_ids}
        said = self.vms[vm_id].preparations
        return {key for key, each in said.items() if each.state != "recovered"} <= held

    @rule(vm_id=vm_ids)
    def lose_store(self, vm_id: str) -> None:
        """Make a VM again: it has prepared nothing, and serves."""
        vm = self.vms[vm_id]
        if vm.is_up:
            vm.preparations = {
                key: replace(said, state="recovered", at=self.now)
                for key, said in vm.preparations.items()
            }
            vm.by_us.clear()
            vm.inbox.clear()

    @precondition(has_events)
    @rule(place=places)
    def end(self, place: int) -> None:
        """End an event: it is completed or cancelled."""
        event = self.events.pop(self._there(place))
        for vm_id in event.named:
            self.vms[vm_id].is_up = True
        # It has nothing to recover from.
        self.vms[WITHOUT_PROGRAM].by_us.discard(event.key)

    def _there(self, place: int) -> str:
        keys = sorted(self.events)
        return keys[place % len(keys)]

    def _is_named(self, vm_id: str, key: EventKey) -> bool:
        return key in self.events and vm_id in self.events[key].named

    def _asked_for(self) -> list[str]:
        """Return the events for which commands are on their way."""
        several = {key for vm in self.vms.values() for _, key, _, _ in vm.inbox}
        return sorted(several & self.events.keys())

    def _asked(self, place: int) -> str:
        keys = self._asked_for() or sorted(self.events)
        return keys[place % len(keys)]

    @rule(vm_id=vm_ids)
    def come_back(self, vm_id: str) -> None:
        """Have a VM recover from what is over."""
        vm = self.vms[vm_id]
        if not vm.is_up:
            return
        for key, said in list(vm.preparations.items()):
            if not self._is_named(vm_id, key) and said.state != "recovered":
                vm.preparations[key] = replace(said, state="recovered", at=self.now)
        vm.by_us = {key for key in vm.by_us if self._is_named(vm_id, key)}

    @rule(vm_id=vm_ids)
    def crash(self, vm_id: str) -> None:
        """Crash a VM, which reports nothing."""
        self.vms[vm_id].is_up = False

    @rule(vm_id=vm_ids)
    def report(self, vm_id: str) -> None:
        """Let a VM's records and heartbeat reach the console."""
        vm = self.vms[vm_id]
        if not vm.is_up:
            return
        self.heard_at[vm_id] = self.now
        self.known[vm_id] = dict(vm.preparations)
        for act, key in vm.answers:
            self.unanswered.pop((vm_id, act, key), None)
        vm.answers.clear()
        for key in sorted({*self.shown, *self.events}):
            event = self.events.get(key)
            if event is None:
                # One reporter's word is enough for the end of the event, not of a turn.
                self.shown.pop(key, None)
                self.ended_at.setdefault(key, self.now)
            elif vm_id in event.named:
                self.ended_at.pop(key, None)
                self.shown[key] = EventFacts(
                    key=key,
                    fingerprint=event.fingerprint,
                    reported=reported(key.event_id),
                    status=event.status,
                    named=event.named,
                    not_before=event.not_before,
                )

    @rule(steps=st.integers(1, 4), reports=st.booleans(), receives=st.booleans())
    def quiet_seconds(self, steps: int, reports: bool, receives: bool) -> None:
        """Let some seconds pass in which the console steps, and VMs report or receive without a
        fault.
        """
        for _ in range(steps):
            self.now += 1.0
            for vm_id, vm in self.vms.items() if receives else ():
                for _ in range(len(vm.inbox)):
                    self.receive(vm_id, works=True)
            for vm_id in MEMBERS if reports else ():
                self.report(vm_id)
            self.step(dies=False, skew=0.0)

    @precondition(has_commands)
    @rule(place=places, works=st.sampled_from([True, True, True, False]))
    def receive_one(self, place: int, works: bool) -> None:
        """Let the oldest command of one VM reach it; the console is told."""
        asked = sorted(vm_id for vm_id, vm in self.vms.items() if vm.inbox)
        vm_id = asked[place % len(asked)]
        self.receive(vm_id, works=works)
        self.report(vm_id)

    def receive(self, vm_id: str, *, works: bool) -> None:
        """Let the oldest command reach a VM, which does what its bridge would do."""
        vm = self.vms[vm_id]
        if not vm.inbox or not vm.is_up:
            return
        act, key, fingerprint, expires = vm.inbox.pop(0)
        event = self.events.get(key)
        if self.now >= expires:
            return
        if event is None or event.status != "Scheduled" or event.fingerprint != fingerprint:
            return  # another copy of it may be followed
        vm.answers.add((act, key))
        if act == "approve":
            self._begin(event)
            for each in event.named:
                self.vms[each].by_us.add(key)
            return
        vm.by_us.add(key)
        state = "prepared" if works else "failed"
        preparation = VmPreparation(
            event_key=key, fingerprint=fingerprint, state=state, at=self.now
        )  # type: ignore[arg-type]
        vm.preparations[key] = preparation

    @precondition(has_events)
    @rule(place=places)
    def deadline(self, place: int) -> None:
        """Have the VMs of an event prepare by themselves, as before each event that nobody
        approved.
        """
        key = self._there(place)
        event = self.events[key]
        for vm_id in event.named - {WITHOUT_PROGRAM}:
            vm = self.vms[vm_id]
            if vm.is_up and key not in vm.preparations:
                mark = event.fingerprint
                preparation = VmPreparation(
                    event_key=key, fingerprint=mark, state="prepared", at=self.now
                )
                vm.preparations[key] = preparation

    @rule(key=event_keys)
    def person_ends(self, key: EventKey) -> None:
        """End a stuck turn as a person; from then on the VM is not away because of the console."""
        turn = self.turns.get(key)
        if turn is None or turn.state != "stuck":
            return
        for holder in turn.vms:
            self.vms[holder.vm_id].by_us.discard(key)
            self.known[holder.vm_id].pop(key, None)
            self.vms[holder.vm_id].preparations.pop(key, None)
        del self.turns[key]

    @precondition(has_commands)
    @rule(vm_id=vm_ids, twice=st.booleans())
    def disturb(self, vm_id: str, twice: bool) -> None:
        """Deliver the oldest command to a VM twice, or lose it."""
        inbox = self.vms[vm_id].inbox
        if twice:
            inbox += inbox[:1]
        else:
            del inbox[:1]

    @rule(seconds=st.sampled_from([1.0, 2.0, 5.0, 10.0, 60.0, 200.0, 900.0, 3700.0]))
    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    @rule(
        dies=st.booleans(),
        skew=st.sampled_from([-CLOCK, 0.0, CLOCK]),
    )
    def step(self, dies: bool, skew: float) -> None:
        """Take a step of a console, which may die after the commit, before it sends anything."""
        now = self.now + skew
        situation = self._situation()
        todo = plan(situation, now)
        turns = {**self.turns, **todo.turns}
        for key in todo.approvals:
            self._may_be_approved(situation, key)
            # The decision is committed together with the turn; the command is sent after that.
            self.approvals[key] = (situation.events[key].fingerprint, self.now + LIFE)
            approved = Occurrence(condition=TurnCondition.APPROVED)
            turns[key] = after_condition(turns[key], approved, situation.events[key], now)
        for key, after in turns.items():
            before = self.turns.get(key)
            if before is not None:
                self._may_come_back(before, after)
            if _is_taken(before, after):
                self._has_room(situation, key)
        self.turns = {key: turn for key, turn in turns.items() if turn.state != "over"}
        self._count_budget()
        if not dies:
            self._send(situation, todo.prepares, todo.approvals)

    def _count_budget(self) -> None:
        """Count what was released under other settings, which may stay away; no more is
        released.
        """
        held = {vm_id for turn in self.turns.values() if turn.is_held for vm_id in turn.vm_ids}
        held |= {vm_id for vm_id, vm in self.vms.items() if vm.by_us}
        self.may_be_away = max(self.at_most, min(self.may_be_away, len(held)))

    def _may_be_approved(self, situation: TurnFacts, key: EventKey) -> None:
        """Check that each VM that the event names has reported that it is prepared for this state,
        and nothing newer, and that there is room.
        """
        self._has_room(situation, key, is_approval=True)
        event = situation.events[key]
        for vm_id in event.named - {WITHOUT_PROGRAM}:
            answer = self.known[vm_id].get(key)
            assert answer is not None
            assert (answer.state, answer.fingerprint) == ("prepared", event.fingerprint)

    def _may_come_back(self, before: Turn, after: Turn) -> None:
        """Check that no VM's part of a turn ends while the VM is away by its own reports, or may
        follow a command; nor, once the event is over, before the VM was heard.
        """
        if not before.is_held or after.state == "waiting":
            return
        left = after.vm_ids if after.is_held else set()
        for vm_id in before.vm_ids - left:
            answer = self.known[vm_id].get(before.event_key)
            assert answer is None or answer.state == "recovered", f"{vm_id} has not recovered"
            expires = self.unanswered.get((vm_id, "prepare", before.event_key), 0.0)
            assert expires <= self.now + CLOCK, f"{vm_id} may follow a command"
            if before.event_key in self.ended_at:
                heard_at = self.heard_at[vm_id] + CLOCK
                assert heard_at >= self.ended_at[before.event_key], f"{vm_id} was not heard since"

    def _has_room(self, situation: TurnFacts, key: EventKey, *, is_approval: bool = False) -> None:
        """Beside VMs that Azure has taken, those that may be down, those that said that they have
        prepared for another event, and those that hold its turn, there is room for those of this
        one. If other settings allowed more, approvals are for VMs that are prepared one after the
        other, and VMs that have begun to prepare may prepare again.
        """
        event = situation.events[key]
        is_away = is_approval or all(self._has_begun(vm_id, key) for vm_id in event.named)
        late = SILENT_AFTER / 2 + CLOCK
        gone = {vm_id for vm_id in MEMBERS if self.now - self.heard_at[vm_id] > late}
        for other in self.shown.values():
            if other.status == "Started":
                gone |= other.named
        for turn in situation.turns.values():
            if turn.event_key != key and turn.is_held:
                gone |= turn.vm_ids
        for vm_id, said in self.known.items():
            if any(each.state != "recovered" for each in said.values()):
                gone.add(vm_id)
        for group, each in situation.groups.items():
            members = MEMBERS_OF[group]
            if members & event.named:
                away = sorted(members & (gone | event.named))
                others = [vm_id for vm_id in away if vm_id not in event.named]
                if is_away and group == "all" and len(away) <= self.may_be_away:
                    others = [one for one in others if not self._only_waits(situation, one)]
                    away = sorted(event.named & members) + others
                assert len(away) <= each.at_most, f"{away} of {group} are away"

    def _only_waits(self, situation: TurnFacts, vm_id: str) -> bool:
        """Check whether a VM is there, and is prepared for the turns that it holds, or has begun to
        prepare.
        """
        began = {
            one for event in self.shown.values() if event.status == "Started" for one in event.named
        }
        is_silent = self.now - self.heard_at[vm_id] > SILENT_AFTER - CLOCK
        turns = [turn for turn in situation.turns.values() if turn.is_held and vm_id in turn.vm_ids]
        only_wait = all(
            turn.state == "prepared"
            or (turn.state in ("preparing", "failed") and self._has_begun(vm_id, turn.event_key))
            for turn in turns
        )
        return not is_silent and vm_id not in began and bool(turns) and only_wait

    def _has_begun(self, vm_id: str, key: EventKey) -> bool:
        """Check whether a VM has reported that it begins to prepare for an event, and not that it
        is back.
        """
        answer = self.known[vm_id].get(key)
        return answer is not None and answer.state != "recovered"

    def _send(
        self,
        situation: TurnFacts,
        prepares: tuple[tuple[str, str], ...],
        approvals: tuple[str, ...],
    ) -> None:
        for key, vm_id in prepares:
            self._has_room(situation, key)
            self._command("prepare", vm_id, situation.events[key])
        for key in approvals:
            event = situation.events[key]
            self._command("approve", min(event.named), event)

    def _command(self, act: str, vm_id: str, event: EventFacts) -> None:
        expires = self.now + LIFE
        self.vms[vm_id].inbox.append((act, event.key, event.fingerprint, expires))
        self.unanswered[(vm_id, act, event.key)] = expires

    def _begin(self, event: ModelEvent) -> None:
        event.status = "Started"
        for vm_id in event.named:
            self.vms[vm_id].is_up = False

    def _situation(self) -> TurnFacts:
        vms = {}
        for vm_id, member in MEMBERS.items():
            age = self.now - self.heard_at[vm_id]
            is_late = age > SILENT_AFTER / 2
            vms[vm_id] = VmFacts(
                vm_id=vm_id,
                name=member.name,
                groups=KEYS[vm_id],
                contact="silent" if age > SILENT_AFTER else "late" if is_late else "heard",
                heard_at=self.heard_at[vm_id],
                prepares=vm_id != WITHOUT_PROGRAM,
                takes_commands=True,
                preparations=tuple(self.known[vm_id].values()),
            )
        return TurnFacts(
            groups=GROUPS[self.at_most],
            vms=vms,
            events={key: self._with_approval(each) for key, each in self.shown.items()},
            turns=dict(self.turns),
            followed_until={
                key: max(at for (_, _, of), at in self.unanswered.items() if of == key)
                for _, _, key in self.unanswered
            },
        )

    def _with_approval(self, event: EventFacts) -> EventFacts:
        """Return the event with its newest approval, which has failed once no VM follows it any
        more.
        """
        fingerprint, until = self.approvals.get(event.key, ("", 0.0))
        if fingerprint != event.fingerprint:
            return event
        if self.now < until:
            return replace(event, approval="open")
        return replace(event, approval="failed", again_at=until + LIFE)

    @invariant()
    def the_budget_holds(self) -> None:
        """Check that of no group more VMs are away because of the console than it allows."""
        for key, group in GROUPS[self.at_most].items():
            sent = {vm_id for vm_id in MEMBERS_OF[key] if self.vms[vm_id].by_us}
            most = self.may_be_away if key == "all" else group.at_most
            assert len(sent) <= most, f"{sorted(sent)} of {key} are away by our doing"


TestTurns = TurnsModel.TestCase
TestTurns.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
