"""Settling: everybody is heard again, and nothing goes wrong any more. Every event must come
through, every turn must end, and every program must come back.
"""

from __future__ import annotations

from typing import Final

from support.turn_world.world import TurnWorld

_LONGEST: Final = 5 * 3600
"""Seconds after which everything is over: a turn is stuck after one hour, and people come every ten
minutes.
"""
_PEOPLE_EVERY: Final = 600
_LATER: Final = 6 * 86400


def settle(world: TurnWorld) -> None:
    """Let the world settle. Raises `Violation` if it does not."""
    simulation = world.simulation
    simulation.calm = True
    simulation.log("---- calm")
    for vm in world.vms:
        vm.line.is_whole = True
        vm.frozen_until = 0.0
        vm.imds.is_silent = False
        if not vm.is_up:
            vm.back_at = min(vm.back_at, simulation.now + 30)
    most = 1 if world.has_zones else world.at_most
    for event in world.azure.events.values():
        event.missing_until = 0.0
        if event.is_open_to_change:
            event.not_before = simulation.now + _LATER
            del event.names[most:]
    waited = asked = 0
    while world.azure.events or world.consoles.turns():
        if waited >= _LONGEST:
            away = {vm.name: sorted(vm.program.away) for vm in world.vms}
            text = f"not settled: {sorted(world.azure.events)} are open, {away} are away"
            raise simulation.violation(text)
        seconds = _tick_after(waited)
        world.tick(seconds)
        waited += seconds
        if waited - asked >= _PEOPLE_EVERY:
            asked = waited
            _let_people_act(world)
    for vm in world.vms:
        if vm.program.away and not vm.has_lost_store:
            away_for = sorted(vm.program.away)
            raise simulation.violation(f"{vm.name} was not told that {away_for} are over")


def _tick_after(waited: int) -> int:
    """Return the length of the next tick: short after people have acted, as commands expire within
    a minute, and longer while only time can change something.
    """
    if waited < 60:
        return 5
    return 10 if waited < _PEOPLE_EVERY or waited % _PEOPLE_EVERY < 300 else 60


def _let_people_act(world: TurnWorld) -> None:
    """Have a person end what is stuck, and approve what waits for people."""
    world.end_turns(force=False)
    turns = {turn.event_id: turn for turn in world.consoles.turns()}
    for event in list(world.azure.events.values()):
        turn = turns.get(event.event_id)
        waits = turn is not None and (
            turn.person_may_approve
            or any(each in str(turn.reason) for each in ("ended its turn", "left it", "a person"))
        )
        if event.is_open_to_change and (world.is_for_people or waits):
            world.consoles.decide(event.event_id, "approve")
