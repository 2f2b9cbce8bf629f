"""Two consoles on one database: the real ingest, turns, decisions and signed commands, which take
their steps when the simulation says so. Their clocks differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from sqlalchemy import text
from support.console.empty_database import put_database
from support.console.turn_cluster import ALICE
from support.turn_world.line import CommandOnTheWay, Kind
from support.turn_world.simulation import Simulation
from support.turn_world.vm import WorldVm

from console.approvals import turn_steps
from console.approvals.command_sender import OutgoingCommand
from console.approvals.decision_requests import DecisionPolicy, DecisionRequest, What
from console.approvals.refusal_reasons import DecisionRefusedError
from console.approvals.request_transaction import RequestTransaction
from console.approvals.service import Decisions
from console.approvals.step_transaction import StepContext, mark_sent, write_decision_step
from console.audit.limiter import AuditLimiter
from console.config.groups import GroupSettings
from console.config.settings import ConsoleSettings
from console.db.batches.batch_transaction import write_batch
from console.db.connection.opening import Database, database_url
from console.db.connection.transactions import next_change_number, write_to
from console.db.decisions import decision_rows, turn_rows
from console.db.snapshot import Snapshots
from console.db.turn_facts.kept_turn_facts import KeptTurnFacts
from console.db.turn_facts.turn_facts import TurnSettings
from console.db.upkeep.timed_changes import write_timed_changes
from console.fleet.candidates import PULL
from console.fleet.contact import BY_HEARTBEATS
from console.fleet.values.decision import VmCommand
from console.records.parse import parse_record, parse_state, parse_status
from console.signing.key_file import KeyFileSigner
from console.turns.facts import Turn
from console.turns.groups import Grouping

CONNECTED: Final[Mapping[str, float | None]] = {"broker": 1.0}


class WorldConsole:
    """One of the consoles; it begins again when it is restarted."""

    def __init__(
        self,
        number: int,
        database: Database,
        *,
        simulation: Simulation,
        settings: TurnSettings,
        signer: KeyFileSigner,
        skew: float,
    ) -> None:
        self.run_id = f"run-{number}"
        self.skew = skew
        self.settings = settings
        self.snapshots = Snapshots(
            database,
            silent_time=BY_HEARTBEATS,
            grouping=settings.grouping,
            clock=lambda: simulation.now + skew,
        )
        self._signer = signer
        self.begin()

    def begin(self) -> None:
        """Begin a run, with nothing in memory."""
        self.facts = KeptTurnFacts(self.settings)
        self.decisions = Decisions(
            self.snapshots,
            signer=self._signer,
            publishers={},
            offer=lambda _vm_id, _jti: None,
            on_commit=lambda: None,
            connected=lambda: CONNECTED,
            turns=self.settings,
            turn_facts=self.facts,
        )

    def take_outgoing(self) -> list[OutgoingCommand]:
        """Return what a person's request has given to the worker, which does not run."""
        outgoing = self.decisions._worker._outgoing
        return [outgoing.popleft() for _ in range(len(outgoing))]


class Consoles:
    """What both consoles do with their one database."""

    def __init__(
        self,
        directory: Path,
        key: Path,
        *,
        simulation: Simulation,
        groups: list[GroupSettings],
        skews: tuple[float, float],
        vms: list[WorldVm],
    ) -> None:
        put_database(directory)
        self._database = Database(database_url(ConsoleSettings(state_dir=directory)))
        self._database.open()
        self._simulation = simulation
        self._signer = KeyFileSigner(key)
        self._grouping = Grouping(groups)
        settings = TurnSettings(grouping=self._grouping, can_sign=True)
        self.each = [
            WorldConsole(
                number,
                self._database,
                simulation=simulation,
                settings=settings,
                signer=self._signer,
                skew=skew,
            )
            for number, skew in enumerate(skews)
        ]
        self._vms = {vm.vm_id: vm for vm in vms}
        self._shown = ""
        with self._database.writing.begin() as connection:
            connection.exec_driver_sql(
                "INSERT INTO listening (console, source, since, until, seen_at) "
                "VALUES ('one', 'broker', 0, 9e9, 9e9)"
            )

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    # What comes in

    def store(self, batch: Iterable[tuple[WorldVm, Kind, bytes]]) -> None:
        """Commit what has come in, in one transaction."""
        now = self._simulation.now
        parsed = [self._parsed(vm, kind, payload) for vm, kind, payload in batch]
        with self._database.writing.begin() as connection:
            change_number = next_change_number(connection)
            write_batch(connection, parsed, change_number, now=now, grouping=self._grouping)

    def _parsed(self, vm: WorldVm, kind: Kind, payload: bytes) -> Any:
        source = "web" if vm.line.is_pull else "broker"
        at = self._simulation.now
        if kind == "record":
            return parse_record(payload, source=source, received_at=at)
        parse = parse_status if kind == "status" else parse_state
        return parse(payload, source=source, received_at=at, vm_id=vm.vm_id, site="default")

    # What they do by themselves

    def step(self, *, has_news: bool) -> None:
        """Let one of the consoles, or both, find what there is to do, and do it."""
        simulation = self._simulation
        if not has_news and simulation.random.random() < 0.6:
            return
        both = simulation.random.sample(self.each, 2)
        for console in both[:1] if simulation.calm or simulation.random.random() < 0.8 else both:
            if not simulation.chance(0.05):
                self._step_of(console)
        self._log_turns()

    def _step_of(self, console: WorldConsole) -> None:
        if self._simulation.random.random() < 0.2:
            now = self._simulation.now + console.skew
            with write_to(self._database) as (connection, change_number):
                write_timed_changes(connection, change_number, now=now, silent_time=BY_HEARTBEATS)
        for _ in range(4):
            if not self._take_turn_steps(console):
                break
        self._continue_decisions(console)

    def _take_turn_steps(self, console: WorldConsole) -> bool:
        """Take the steps of turns that are due; return whether there may be more."""
        with write_to(self._database) as (connection, change_number):
            snapshot = console.snapshots.of(connection)
            requests = RequestTransaction(
                snapshot,
                change_number,
                run_id=console.run_id,
                policy=DecisionPolicy(can_sign=True),
                audit_limiter=AuditLimiter(),
            )
            facts = console.facts.facts_for_step(snapshot)
            written = turn_steps.write_turn_steps(
                snapshot, change_number, facts, requests, {"broker"}
            )
        dies = self._simulation.chance(0.03)
        for outgoing in sorted(written.outgoing, key=_order):
            self.send(outgoing, is_lost=dies)
        return written.has_changed

    def _continue_decisions(self, console: WorldConsole) -> None:
        context = StepContext(
            up_since=0.0, run_id=console.run_id, connected=CONNECTED, turns=console.settings
        )
        with console.snapshots.open() as snapshot:
            found = decision_rows.read_all_open(snapshot.connection)
        for each in sorted(found, key=lambda decision: (decision.event_id, decision.at)):
            with write_to(self._database) as (connection, change_number):
                snapshot = console.snapshots.of(connection)
                taken = write_decision_step(snapshot, each.id, context, change_number)
            if taken.outgoing is not None:
                self.send(taken.outgoing)

    def send(self, outgoing: OutgoingCommand, *, is_lost: bool = False) -> None:
        """Send a command over the broker; it may come late, twice or never. A VM that polls over
        HTTPS gets it when it polls. `is_lost`: the console dies before it is sent.
        """
        simulation = self._simulation
        command = outgoing.command
        vm = self._vms[command.vm_id]
        lost = ", which dies before it is sent" if is_lost else ""
        simulation.log(f"console: {command.act} {command.event_id} for {vm.name}{lost}")
        if is_lost or command.channel == PULL:
            return
        token = self._signer.sign(command, simulation.now)
        expires_at = simulation.now + max(1, int(command.expires_at - simulation.now))
        for _ in range(simulation.trouble([1] * 8 + [2, 0], 1)):
            at = simulation.now + simulation.trouble([0, 0, 0, 1, 5, 20, 50], 0)
            vm.line.inbox.append(CommandOnTheWay(at, expires_at, token, command))
        if not simulation.chance(0.1):
            self._mark_sent([command])

    def _mark_sent(self, commands: Iterable[VmCommand]) -> None:
        answers = [(command, None, self._simulation.now) for command in commands]
        with write_to(self._database) as (connection, change_number):
            mark_sent(self.each[0].snapshots.of(connection), answers, change_number)

    def give_commands(self, vm: WorldVm) -> None:
        """Give a VM that polls over HTTPS its commands; they are under way for a moment."""
        console = self._simulation.pick(self.each)
        now = self._simulation.now + console.skew
        with self._database.writing.begin() as connection:
            polled = text("UPDATE vm SET pulled_at = :now WHERE vm_id = :vm_id")
            connection.execute(polled, {"now": now, "vm_id": vm.vm_id})
        given = sorted(
            console.decisions.commands_for(vm.vm_id), key=lambda each: (each.event_id, each.act)
        )
        for command in given:
            token = self._signer.sign(command, now)
            at = self._simulation.now + vm.line.delay()
            vm.line.inbox.append(CommandOnTheWay(at, float("inf"), token, command))
        if given and not self._simulation.chance(0.2):
            self._mark_sent(each for each in given if each.sent_at is None)

    # What persons do

    def decide(self, event_id: str, what: What, *, force: bool = False) -> bool:
        """Approve or leave an event as a person; return whether that was taken."""
        console = self._simulation.pick(self.each)
        with console.snapshots.open() as snapshot:
            known = snapshot.events.find_event(event_id)
        if known is None:
            return False
        request = DecisionRequest(
            what=what,
            person=ALICE,
            event_id=event_id,
            fingerprint=known.shown.report.fingerprint,
            reason="maintenance",
            force=force,
        )
        result = "done"
        try:
            asyncio.run(console.decisions.decide(request))
        except DecisionRefusedError as refused:
            result = f"refused: {refused.reason}"
        forced = " by force" if force else ""
        self._simulation.log(f"person: {what} {event_id}{forced}: {result}")
        for outgoing in console.take_outgoing():
            self.send(outgoing)
        return result == "done"

    def end_turn(self, turn: Turn, *, force: bool) -> bool:
        """End a turn as a person; return whether that was taken."""
        console = self.each[0]
        result = "done"
        try:
            asyncio.run(console.decisions.end_turn(ALICE, turn.event_id, "it is back", force=force))
        except DecisionRefusedError as refused:
            result = f"refused: {refused.reason}"
        forced = " by force" if force else ""
        self._simulation.log(f"person: ends the turn of {turn.event_id}{forced}: {result}")
        return result == "done"

    def restart(self) -> None:
        """Restart one of them."""
        number = self._simulation.random.randrange(2)
        self._simulation.log(f"console {number}: restarts")
        self.each[number].begin()

    # What they show

    def turns(self) -> list[Turn]:
        """Return the turns that are not over."""
        with self.each[0].snapshots.open() as snapshot:
            found = turn_rows.read_turns(snapshot.connection)
        return sorted(found, key=lambda turn: turn.event_id)

    def names_of(self, turn: Turn) -> list[str]:
        """Return the names of the VMs that hold a turn."""
        return sorted(self._vms[each.vm_id].name for each in turn.still_away)

    def shown(self) -> str:
        """Return the turns in one line."""
        return ", ".join(
            f"{turn.event_id} {turn.state} {self.names_of(turn)}"
            + (f" ({turn.reason})" if turn.reason else "")
            for turn in self.turns()
        )

    def _log_turns(self) -> None:
        shown = self.shown()
        if shown != self._shown:
            self._shown = shown
            self._simulation.log(f"turns: {shown or 'none'}")


def _order(outgoing: OutgoingCommand) -> tuple[str, str, str]:
    command = outgoing.command
    return command.event_id, command.vm_id, command.act
