"""The notices of the console: each once, in order, over kill -9, to sinks of the bridge's kinds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from sqlalchemy import delete, select, text
from support.console.mqtt import MqttFleet as SourcePublisher
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto
from support.sinks.http_server import HttpServer

from console.config.settings import ConsoleSettings
from console.db import notices as notice_rows
from console.db.batches.batch_transaction import write_batch
from console.db.connection.errors import DatabaseFailedError
from console.db.connection.opening import Database, database_url
from console.db.connection.transactions import next_change_number, write_to
from console.db.notices import MAX_AWAY, MAX_OF_ONE, Incident
from console.db.schema.decision_tables import notice as notice_table
from console.db.schema.decision_tables import notice_cursor
from console.db.snapshot import Snapshots
from console.db.sources.listening import ListeningInterval, write_listening
from console.db.upkeep.retention import delete_before
from console.fleet.contact import Contact
from console.fleet.reporter_choice import as_shown
from console.fleet.values.decision import UNDECIDED, Decision
from console.fleet.values.event import KnownEvent
from console.fleet.values.report import LatestReport
from console.fleet.values.vm import Vm
from console.notify.conflict_notices import conflict_notices
from console.notify.due_notices import due_notices
from console.notify.event_notices import approval_failed, notices_of_open, over
from console.notify.incidents import GATHER_SECONDS, MANY_VMS
from console.notify.notice import Notice
from console.notify.notice_worker import NoticeWorker
from console.notify.sinks import read_sinks
from console.notify.vm_notices import (
    AWAY_SECONDS,
    PATIENCE_SECONDS,
    RETURN_SECONDS,
    AwaitedReturn,
    VmToCheck,
    vm_notices,
)
from console.records.incoming import EventReport, IncomingMessage
from console.records.parse import parse_record, parse_status
from sinks.base import Sink, SinkContext, SinkSettings
from sinks.kinds.webhook.template import compile_template, render
from sinks.samples import sample_event
from wire.moment import rfc3339
from wire.record import Record, read_record
from wire.strictjson import canonical_json
from wire.vm import VmIdentity

NOW = 1_800_000_000.0
DOCS = Path(__file__).parents[3] / "docs" / "webhook-templates.md"
TEMPLATES = dict(
    re.findall(
        r"^## (\w+)\n.*?```jinja\n(.*?)```", DOCS.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
)


def report(
    *, transition: str = "scheduled", pause: float | None = None, **given: Any
) -> EventReport:
    """Return the report of a reporter; `given` are the event's own fields."""
    fields: dict[str, Any] = {
        "event_id": "E",
        "event_type": "Reboot",
        "resource_type": "VirtualMachine",
        "resources": ("web-1",),
        "event_status": "Scheduled",
        "not_before": None,
        "description": "maintenance",
        "event_source": "Platform",
        "duration_in_seconds": 30,
    }
    return EventReport(
        event=replace(sample_event(), **fields | given),
        transition=transition,
        affects_this_vm=True,
        impact="restart",
        revision=1,
        fingerprint="sha256:1",
        pause_seconds=pause,
    )


def known(at: float = NOW, **given: Any) -> KnownEvent:
    """Return an event as its one reporter, web-1, shows it."""
    shown = LatestReport(
        event_id="E",
        vm_id="vm-1",
        record_id="r",
        stream="s",
        sequence=1,
        time=at,
        first_seen_at=at,
        report=report(**given),
    )
    event = as_shown(None, shown, sites=("default",))
    return KnownEvent(
        event=event,
        shown=shown,
        seen_by=1,
        reports_differ=False,
        named={},
        receipts=(),
        decided=UNDECIDED,
    )


class NoticedFleet:
    """VMs whose records are in a database, and the check that finds their notices."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.now = NOW
        self.snapshots = Snapshots(database, clock=lambda: self.now)
        with database.writing.begin() as connection:
            row = ListeningInterval(source="web", since=NOW - 86_400, until=NOW + 86_400)
            write_listening(connection, "test", [row], seen_at=NOW + 86_400)

    def take(self, *items: IncomingMessage) -> None:
        """Commit what came in."""
        with write_to(self.database) as (connection, change_number):
            write_batch(connection, items, change_number, now=self.now)

    def say(self, *records: Record) -> None:
        """Commit records, each received now."""
        self.take(
            *(parse_record(each.body, source="web", received_at=self.now) for each in records)
        )

    def lose(self, *vms: FakeVm) -> None:
        """Commit that the connections of these VMs were lost."""
        self.status("offline", *vms, reason="lost")

    def status(self, status: str, *vms: FakeVm, reason: str | None = None) -> None:
        """Commit the retained status of these VMs."""
        for vm in vms:
            body = vm.status(status, reason=reason)
            about = {"source": "web", "vm_id": vm.vm_id, "site": "default"}
            self.take(parse_status(body, received_at=self.now, **about))

    def moment(self) -> datetime:
        """Return the present time for a record."""
        return datetime.fromtimestamp(self.now, UTC)

    def tell(self, at: float) -> list[Notice]:
        """Look at a moment, store the notices, and return them."""
        self.now = at
        with self.snapshots.open() as snapshot:
            found = due_notices(snapshot, begun=NOW - 86_400)
        told = vm_notices(found.vms, found.incidents, at)
        every = [*found.notices, *told.notices]
        with write_to(self.database) as (connection, _):
            notice_rows.delete_incidents(connection, "contact", told.ended)
            notice_rows.upsert_incidents(connection, "contact", told.opened, at)
            notice_rows.insert_notices(connection, every, base="http://c", site="console", now=at)
        return every


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[NoticedFleet]:
    """An empty database on SQLite."""
    database = Database(database_url(ConsoleSettings(state_dir=tmp_path)))
    database.open()
    yield NoticedFleet(database)
    database.close()


def vm(number: int = 1, **given: Any) -> Vm:
    """Return a VM that was heard at NOW."""
    fields: dict[str, Any] = {"vm_id": f"vm-{number}", "name": f"web-{number}", "heard_at": NOW}
    return Vm(**fields | given)


def kinds(found: list[Notice]) -> list[tuple[str, str]]:
    """Return the kinds of the notices."""
    return [(each.kind, each.subject) for each in found]


def test_a_due_decision_has_two_notices() -> None:
    """A decision has a notice when it falls due and another one five minutes before notBefore."""
    open_event = known(not_before=datetime.fromtimestamp(NOW + 900, UTC))
    early = notices_of_open(open_event, "due", NOW)
    assert kinds(early) == [("decision-due", "E")]
    assert early[0].title == "Reboot of web-1: a decision is due"
    late = notices_of_open(open_event, "due", NOW + 601)
    assert kinds(late) == [("decision-due", "E"), ("undecided", "E")]
    assert late[0].id == early[0].id
    assert notices_of_open(open_event, "left", NOW + 601) == []


@pytest.mark.parametrize("kind", ["Preempt", "Terminate"])
def test_an_eviction_is_one_notice_without_a_decision(kind: str) -> None:
    """An eviction has one notice, which asks for no decision: Azure gives 30 seconds of notice and
    takes the VM in any case.
    """
    soon = datetime.fromtimestamp(NOW + 30, UTC)
    (only,) = notices_of_open(known(event_type=kind, not_before=soon), "due", NOW)
    assert only.kind == "decision-due"
    assert only.title == f"{kind} of web-1: for your information, nothing needs to be decided"


def test_an_end_says_what_it_cost() -> None:
    """The notice of an end has the longest interruption that a named VM measured."""
    ended = known(transition="ended", event_status="Completed", pause=4.25)
    told = over(ended, [ended.shown])
    assert told.text.endswith("The longest interruption measured: 4.2 s.")
    assert told.more == {"interruptionSeconds": 4.25}


def test_an_approval_that_failed_names_who_gave_it_and_why() -> None:
    """The notice of a failed approval names the person and the reason, also for an unknown event,
    and the person's text stays on one line.
    """
    failed = Decision(
        id="d",
        event_id="E",
        fingerprint="f",
        kind="approve",
        state="over",
        actor="a",
        reason="r",
        at=NOW,
        outcome="rejected",
        outcome_reason="the\u202e end",
        over_at=NOW,
    )
    told = approval_failed(failed, known())
    assert told.title == "Reboot of web-1: the approval of a was rejected"
    alone = approval_failed(failed, None)
    assert "\u202e" not in alone.text
    assert "\\u202e" in alone.text


class Teller:
    """Looks of a console that keeps its incidents as the database does; `told` has its notices."""

    def __init__(self, incidents: dict[str, Incident] | None = None) -> None:
        self.incidents = incidents if incidents is not None else {}

    def due_notices(
        self,
        vms: Sequence[Vm],
        now: float,
        cases: Mapping[str, AwaitedReturn] = MappingProxyType({}),
    ) -> list[Notice]:
        """Look once at a fleet of some VMs."""
        seen = [
            VmToCheck(
                vm=each,
                contact=contact(each),
                since=each.lost_at or now,
                awaited_return=cases.get(each.vm_id),
            )
            for each in vms
        ]
        told = vm_notices(seen, self.incidents, now)
        for vm_id in told.ended:
            del self.incidents[vm_id]
        self.incidents.update({each.vm_id: each for each in told.opened})
        return told.notices

    def restarted(self) -> Teller:
        """Return another run, or another console, on the same database."""
        return Teller(self.incidents)


def contact(vm: Vm) -> Contact:
    """Return how a VM is heard that was retired, or lost, or is there."""
    if vm.retired_at is not None:
        return "retired"
    return "heard" if vm.lost_at is None else "silent"


def test_a_silent_vm_is_one_notice_and_one_end() -> None:
    """A silent VM has one notice, and one when it is heard again; a connection that is lost for
    half a minute has none.
    """
    teller, lost = Teller(), [vm(lost_at=NOW)]
    assert teller.due_notices(lost, NOW) == []
    assert teller.due_notices([vm(heard_at=NOW + 5)], NOW + 5) == []
    assert teller.due_notices(lost, NOW + 10) == []
    opened = teller.due_notices(lost, NOW + 10 + PATIENCE_SECONDS)
    assert kinds(opened) == [("vm-silent", "vm-1")]
    assert teller.due_notices(lost, NOW + 20 + PATIENCE_SECONDS) == []
    back = [vm(heard_at=NOW + 99)]
    ended = teller.due_notices(back, NOW + 99)
    assert kinds(ended) == [("vm-heard", "vm-1")]
    assert teller.due_notices(back, NOW + 100) == []


def test_a_restart_repeats_no_notice() -> None:
    """Another run, or another console, reads the open incidents and ends them."""
    lost = [vm(lost_at=NOW)]
    teller = Teller()
    for now in (NOW, NOW + PATIENCE_SECONDS):
        teller.due_notices(lost, now)
    other = teller.restarted()
    for seconds in (1, PATIENCE_SECONDS + 1, 2 * PATIENCE_SECONDS + 2):
        assert other.due_notices(lost, NOW + PATIENCE_SECONDS + seconds) == []
    found = other.due_notices([vm(heard_at=NOW + 500)], NOW + 500)
    assert kinds(found) == [("vm-heard", "vm-1")]


def test_four_hundred_vms_that_fall_silent_and_come_back_are_a_handful_of_notices() -> None:
    """Silences within three minutes, and their ends, are a few notices; each key ends once."""
    teller = Teller()
    notices = []
    away = {number: NOW + number * 0.45 for number in range(400)}
    for second in range(0, 600, 2):
        now = NOW + second
        fleet = [
            *(
                vm(number, lost_at=at) if at <= now < at + 300 else vm(number, heard_at=now)
                for number, at in away.items()
            )
        ]
        notices += teller.due_notices(fleet, now)
    assert len(notices) <= 8
    opened = [each.subject for each in notices if each.kind == "vm-silent"]
    ended = [each.subject for each in notices if each.kind == "vm-heard"]
    assert sorted(opened) == sorted(ended)
    assert len(set(opened)) == len(opened)
    assert sum(each.more["count"] for each in notices if each.kind == "vm-silent") == 400
    assert teller.incidents == {}


def test_many_silent_vms_are_one_notice_with_the_first_names() -> None:
    """Many VMs that fall silent at once are one notice with the first names."""
    lost = [vm(number, lost_at=NOW) for number in range(5000)]
    teller = Teller()
    teller.due_notices(lost, NOW)
    assert teller.due_notices(lost, NOW + PATIENCE_SECONDS) == []
    (told,) = teller.due_notices(lost, NOW + PATIENCE_SECONDS + GATHER_SECONDS)
    assert told.title == "5000 VMs are silent"
    assert "web-0, web-1, web-10" in told.text
    assert "and 4980 more" in told.text
    assert len(told.more["vmIds"]) == 100
    record = told.sealed(number=1, stream="s", base="http://c", site="console")
    assert len(record.body) < 10_000
    back = [vm(number, heard_at=NOW + 200) for number in range(5000)]
    (ended,) = teller.due_notices(back, NOW + 200)
    assert (ended.kind, ended.subject) == ("vm-heard", told.subject)


def test_a_group_ends_when_the_last_of_it_is_back_or_retired() -> None:
    """The incident of several VMs ends when each is heard again or retired."""
    vms = [vm(number, lost_at=NOW) for number in range(MANY_VMS + 1)]
    teller = Teller()
    for now in (NOW, NOW + PATIENCE_SECONDS + GATHER_SECONDS):
        (*_, told) = teller.due_notices([*vms], now) or [None]
    assert told is not None
    back = [vm(number, heard_at=NOW + 200) for number in range(MANY_VMS)]
    assert teller.due_notices([*back, vms[-1]], NOW + 200) == []
    retired = replace(vms[-1], retired_at=NOW + 300)
    (ended,) = teller.due_notices([*back, retired], NOW + 300)
    assert (ended.kind, ended.subject) == ("vm-heard", told.subject)


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_vm_that_is_retired_ends_its_incident(is_gone: bool) -> None:
    """The incident of a VM that is retired or removed ends, and its notice does not say that the VM
    is heard.
    """
    teller, lost = Teller(), vm(lost_at=NOW)
    for now in (NOW, NOW + PATIENCE_SECONDS):
        teller.due_notices([lost], now)
    left = [] if is_gone else [replace(lost, retired_at=NOW + 50)]
    assert kinds(teller.due_notices([*left], NOW + 50)) == [("vm-retired", "vm-1")]
    assert teller.incidents == {}


@pytest.mark.parametrize("is_past", [True, False])
def test_a_vm_that_does_not_come_back_from_its_event(fleet: NoticedFleet, is_past: bool) -> None:
    """A VM is not reported as silent during its event, and is reported as not back after the
    event's time.
    """
    vm, peer = FakeVm(name="web-1"), FakeVm(name="peer")
    fleet.say(vm.heartbeat(now=fleet.moment()))
    fleet.lose(vm)
    fleet.now = NOW + 1
    names = {"resources": ["web-1"], "now": fleet.moment()}
    fleet.say(peer.event("E", transition="ended" if is_past else "started", **names))
    silent = [("vm-silent", vm.vm_id)]
    for seconds in (2, PATIENCE_SECONDS + 2, RETURN_SECONDS):
        told = kinds(fleet.tell(NOW + seconds))
        assert silent[0] not in told
        assert ("vm-not-back", vm.vm_id) not in told
    found = kinds(fleet.tell(NOW + RETURN_SECONDS + 40))
    assert ("vm-not-back", vm.vm_id) in found
    assert ("vm-not-back", vm.vm_id) not in kinds(fleet.tell(NOW + RETURN_SECONDS + 50))


def test_a_vm_that_stopped_in_order_and_does_not_come_back(fleet: NoticedFleet) -> None:
    """A VM whose bridge stopped before it could report the start is reported as not back."""
    vm = FakeVm(name="web-1")
    start = rfc3339(fleet.moment() + timedelta(seconds=30))
    fleet.say(vm.event("E", now=fleet.moment(), not_before=start))
    fleet.now = NOW + 10
    fleet.say(vm.stopped(now=fleet.moment()))
    for seconds in (10, 100, RETURN_SECONDS):
        assert ("vm-not-back", vm.vm_id) not in kinds(fleet.tell(NOW + seconds))
    assert ("vm-not-back", vm.vm_id) in kinds(fleet.tell(NOW + RETURN_SECONDS + 90))


def test_many_vms_that_do_not_come_back_are_one_notice() -> None:
    """VMs that do not come back from their events are one notice, and have one end; a VM that
    returns later, or never, causes no further one.
    """
    teller = Teller()
    cases = {
        f"vm-{number}": AwaitedReturn(event_id=f"E-{number // 20}", kind="Reboot", due=NOW + number)
        for number in range(50)
    }
    lost = [vm(number, lost_at=NOW) for number in range(50)]
    notices = []
    for second in range(0, 300, 2):
        notices += teller.due_notices(lost, NOW + second, cases)
    (told,) = notices
    assert (told.kind, told.title) == (
        "vm-not-back",
        "50 VMs have not come back after their events",
    )
    assert told.more["count"] == 50
    back = [vm(number, heard_at=NOW + 400) for number in range(49)]
    assert teller.due_notices([*back, lost[49]], NOW + 400, {"vm-49": cases["vm-49"]}) == []
    (ended,) = teller.due_notices(
        [vm(number, heard_at=NOW + 500) for number in range(50)], NOW + 500
    )
    assert (ended.kind, ended.subject) == ("vm-heard", told.subject)
    assert teller.incidents == {}


@pytest.mark.parametrize("knows", [True, False])
def test_a_peer_does_not_hide_that_a_vm_is_silent(fleet: NoticedFleet, *, knows: bool) -> None:
    """A peer's report of a long event does not hide for long that a VM is silent, and for less time
    if the VM has not reported the event itself.
    """
    vm, peer = FakeVm(name="web-1"), FakeVm(name="liar")
    fleet.say(vm.heartbeat(now=fleet.moment()), peer.heartbeat(now=fleet.moment()))
    if knows:
        fleet.say(vm.event("E", now=fleet.moment()))
    fleet.lose(vm)
    fleet.now = NOW + 1
    years = 5 * 366 * 86_400
    fleet.say(lasting(peer.event("E", transition="started", resources=["web-1"]), years, fleet))
    told = ("vm-not-back", vm.vm_id)
    assert told not in kinds(fleet.tell(NOW + RETURN_SECONDS))
    assert (told in kinds(fleet.tell(NOW + 2 * RETURN_SECONDS))) == (not knows)
    if knows:
        assert told in kinds(fleet.tell(NOW + AWAY_SECONDS + RETURN_SECONDS))


def lasting(record: Record, seconds: int, fleet: NoticedFleet) -> Record:
    """Return the record of an event with another duration, made now."""
    whole = json.loads(record.body)
    whole["time"] = rfc3339(fleet.moment())
    event = whole["data"]["event"]
    event["durationInSeconds"] = seconds
    fields = {name: value for name, value in event.items() if name != "description"}
    whole["data"]["fingerprint"] = "sha256:" + sha256(canonical_json(fields)).hexdigest()
    return read_record(canonical_json(whole))


def test_a_group_is_ended_though_one_of_it_got_an_incident_of_its_own() -> None:
    """The incident of several VMs ends although one of them got an incident of its own, because it
    does not come back from its event.
    """
    vms = [vm(number, lost_at=NOW) for number in range(1, MANY_VMS + 2)]
    teller = Teller()
    for now in (NOW, NOW + PATIENCE_SECONDS + GATHER_SECONDS):
        found = teller.due_notices(vms, now)
    (group,) = found
    back = [vm(number, heard_at=NOW + 200) for number in range(2, MANY_VMS + 2)]
    assert teller.due_notices([vms[0], *back], NOW + 200) == []
    case = {"vm-1": AwaitedReturn(event_id="E", kind="Reboot", due=NOW + 900)}
    found = teller.due_notices([vms[0], *back], NOW + 1000, case)
    assert kinds(found) == [("vm-not-back", "vm-1"), ("vm-heard", group.subject)]


@pytest.mark.parametrize("kind", ["Terminate", "Preempt"])
def test_a_deleted_vm_is_not_awaited(fleet: NoticedFleet, kind: str) -> None:
    """A VM that its event deletes is not awaited, and is reported as silent."""
    vm = FakeVm(name="web-1")
    now = fleet.moment()
    fleet.say(vm.event("E", event_type=kind, impact="delete", transition="started", now=now))
    fleet.lose(vm)
    assert kinds(fleet.tell(NOW + PATIENCE_SECONDS)) == [("vm-silent", vm.vm_id)]


@pytest.mark.parametrize("is_double", [False, True])
def test_what_one_vm_reports_delays_no_notice_of_others(
    fleet: NoticedFleet, *, is_double: bool
) -> None:
    """Many ends from one VM, with any times and with ids of another scope, delay no notice of
    another VM's event, which is among the first.
    """
    honest, liar = FakeVm(name="web-1"), FakeVm(name="liar", group="group-8")
    liars = [liar, FakeVm(name="liar-2", group="group-9")] if is_double else [liar]
    fleet.tell(NOW)
    for number in range(6):
        early = datetime.fromtimestamp(NOW - 1800 + number, UTC)
        ids = [f"X-{number}-{each}" for each in range(100)]
        for each in liars:
            fleet.say(*(each.event(event_id, transition="ended", now=early) for event_id in ids))
    fleet.say(honest.event("E", transition="ended", now=fleet.moment()))
    found = kinds(fleet.tell(NOW + 61))
    assert ("event-over", "E") in found[:3]
    assert len(found) <= MAX_OF_ONE * len(liars) + 1
    assert len(fleet.tell(NOW + 62)) <= len(liars)
    fleet.now = NOW + 700
    ends = [subject for kind, subject in kinds(fleet.tell(fleet.now)) if kind == "event-over"]
    assert 0 < len(ends) <= MAX_OF_ONE * len(liars)


def test_a_vm_that_comes_and_goes_has_few_notices(fleet: NoticedFleet) -> None:
    """A VM that reports an old start and is stopped and heard in turn has a few notices within ten
    minutes, always in pairs, and one later if it stays away.
    """
    vm = FakeVm()
    early = datetime.fromtimestamp(NOW - 7200, UTC)
    fleet.say(vm.event("E", transition="started", now=early))
    found: list[str] = []
    for second in range(1, 41):
        fleet.now = NOW + second
        now = fleet.moment()
        fleet.say(vm.stopped(now=now) if second % 2 else vm.heartbeat(now=now))
        found += [kind for kind, _ in kinds(fleet.tell(fleet.now))]
    assert found == ["vm-not-back", "vm-heard"] * MAX_AWAY
    fleet.now = NOW + 41
    fleet.say(vm.stopped(now=fleet.moment()))
    assert fleet.tell(NOW + 42) == []
    assert kinds(fleet.tell(NOW + 700)) == [("vm-not-back", vm.vm_id)]


@pytest.mark.parametrize("sign", ["x", "\ue000", "\U000e0041", "\n"])
def test_no_notice_is_longer_than_a_chat_takes(fleet: NoticedFleet, sign: str) -> None:
    """A notice has a limited length whatever a VM reports, because a chat that refuses it would
    delay those behind it.
    """
    fleet.tell(NOW)
    vm = FakeVm(name=sign * 299 + "1", scale_set=sign * 20_000, site=sign * 300)
    resources = [vm.name, *(f"{sign * 298}{number}" for number in range(9))]
    words = {"event_type": sign * 20_000, "status": sign * 300, "resources": resources}
    fleet.say(vm.event("E", transition="ended", now=fleet.moment(), **words))  # type: ignore[arg-type]
    vm.name = sign * 299 + "2"
    fleet.say(vm.heartbeat(now=fleet.moment()))
    with fleet.snapshots.open() as snapshot:
        conflicts = snapshot.vms.vms_in_conflict()
    about = conflict_notices(conflicts, {}, NOW + 700).notices
    fleet.lose(vm)
    found = [*fleet.tell(NOW + 200), *about]
    assert {each.kind for each in found} == {"event-over", "vm-silent", "vm-conflict"}
    for each in found:
        assert each.title.isprintable()
        assert len(each.title) + len(each.text) < 2000


def test_an_end_is_read_once(fleet: NoticedFleet) -> None:
    """Of five hundred ended events, a check reads only those without the notice of their end."""
    vms = [FakeVm(name=f"web-{number}") for number in range(3)]
    for number in range(5):
        for transition in ("started", "ended"):
            more = {"transition": transition, "now": fleet.moment(), "resources": ["web-0"]}
            fleet.say(*(vm.event(f"E{number}", **more) for vm in vms))
    ended = [("event-over", f"E{number}") for number in range(5)]
    assert sorted(kinds(fleet.tell(NOW + 1))) == ended
    with fleet.snapshots.open() as snapshot:
        assert notice_rows.ended_without_notice(snapshot.connection, NOW - 3600, NOW) == []
    assert fleet.tell(NOW + 2) == []


def takes_commands(fleet: NoticedFleet, vm: FakeVm) -> None:
    """A VM is heard and takes commands."""
    body = vm.status(commands=True, time=rfc3339(fleet.moment()))
    fleet.take(
        parse_status(body, source="web", vm_id=vm.vm_id, site="default", received_at=fleet.now)
    )


def test_a_late_end_has_a_notice_if_a_decision_was_due(fleet: NoticedFleet) -> None:
    """The end of an event whose decision was due has a notice, although the console was away or the
    VM's clock is behind.
    """
    vm = FakeVm()
    fleet.say(vm.event("E", now=fleet.moment()))
    takes_commands(fleet, vm)
    assert kinds(fleet.tell(NOW + 1)) == [("decision-due", "E")]
    fleet.now = NOW + 7200
    ended = datetime.fromtimestamp(NOW + 300, UTC)
    fleet.say(vm.event("E", transition="ended", now=ended))
    assert kinds(fleet.tell(NOW + 7201)) == [("event-over", "E")]
    assert fleet.tell(NOW + 7300) == []


def test_an_event_that_comes_back_has_new_notices(fleet: NoticedFleet) -> None:
    """An event that comes back has new notices, because its first end has ended the incident; its
    earlier approval does not count.
    """
    vm = FakeVm()
    fleet.say(vm.event("E", now=fleet.moment()))
    takes_commands(fleet, vm)
    due, ended = [("decision-due", "E")], [("event-over", "E")]
    assert kinds(fleet.tell(NOW + 1)) == due
    for again in range(3):
        at = NOW + 10 + 10 * again
        fleet.now = at
        fleet.say(
            vm.receipt("E", "posted", jti=f"jti-{again}", now=fleet.moment()),
            vm.event("E", transition="ended", status="Unknown", now=fleet.moment()),
            vm.receipt("E", "confirmed", jti=f"jti-{again}", now=fleet.moment()),
        )
        assert kinds(fleet.tell(at + 1)) == ended
        assert fleet.tell(at + 2) == []
        fleet.now = at + 3
        fleet.say(vm.event("E", now=fleet.moment()))
        assert kinds(fleet.tell(at + 4)) == due
        assert fleet.tell(at + 5) == []


def test_an_end_has_a_notice_though_the_first_look_was_in_the_future(fleet: NoticedFleet) -> None:
    """An end has a notice although the console's clock was a day ahead at its first start."""
    vm = FakeVm()
    for transition in ("scheduled", "ended"):
        fleet.say(vm.event("E", transition=transition, now=fleet.moment()))
    with fleet.snapshots.open() as snapshot:
        found = due_notices(snapshot, begun=NOW + 86_400)
    assert ("event-over", "E") in kinds(found.notices)


def test_notices_of_an_open_event_are_kept(fleet: NoticedFleet) -> None:
    """The retention keeps notices about an open event, because they would be sent again."""
    vm = FakeVm()
    fleet.say(vm.event("E", now=fleet.moment()))
    takes_commands(fleet, vm)
    assert kinds(fleet.tell(NOW + 1)) == [("decision-due", "E")]
    fleet.say(vm.event("F", transition="ended", now=fleet.moment()))
    assert kinds(fleet.tell(NOW + 2)) == [("event-over", "F")]
    with fleet.database.writing.begin() as connection:
        delete_before(connection, NOW + 60, 500)
    takes_commands(fleet, vm)
    assert fleet.tell(NOW + 3) == []


def test_two_events_of_one_id_have_their_own_notices(fleet: NoticedFleet) -> None:
    """Two events with one id in two scopes have their own notices: the end of one ends no incident
    of the other, and repeats no notice of its decision.
    """
    one, other = FakeVm(name="a"), FakeVm(name="b", group="group-9")
    told: list[Notice] = []

    def look_for_a_while(until: float) -> None:
        while fleet.now < until:
            told.extend(each for each in fleet.tell(fleet.now + 30) if each.kind != "audit-head")
            fleet.say(one.heartbeat(now=fleet.moment()), other.heartbeat(now=fleet.moment()))

    for vm in (one, other):
        fleet.say(vm.event("E", now=fleet.moment()))
        takes_commands(fleet, vm)
        look_for_a_while(fleet.now + 60)
    for vm in (other, one):
        fleet.say(vm.event("E", transition="ended", status="Canceled", now=fleet.moment()))
        look_for_a_while(fleet.now + 300)
    assert [(each.kind, each.incident) for each in told] == [
        ("decision-due", "E"),
        ("decision-due", told[1].incident),
        ("event-over", told[1].incident),
        ("event-over", "E"),
    ]
    assert told[1].incident != "E"
    assert [each.vm["name"] for each in told] == ["a", "b", "b", "a"]


def notice(**given: Any) -> Notice:
    """Return a notice."""
    return replace(over(known(transition="ended", event_status="Completed"), []), **given)


def tell(database: Database, *found: Notice) -> int:
    """Store notices; return how many were new."""
    with database.writing.begin() as connection:
        next_change_number(connection)
        return notice_rows.insert_notices(
            connection, found, base="http://c", site="console", now=NOW
        )


def claimed(database: Database, sink: str, console: str, now: float) -> list[int]:
    """Return the numbers of the notices that a console may deliver."""
    with database.writing.begin() as connection:
        found = notice_rows.claim(connection, sink, console, now=now, limit=10)
        return [each.sequence for each in found]


def advance(database: Database, sink: str, console: str, number: int) -> None:
    """Note that a sink has acknowledged everything up to a number."""
    with database.writing.begin() as connection:
        notice_rows.advance(connection, sink, console, number)


def test_a_fact_is_stored_once_and_each_sink_has_its_place(database: Database) -> None:
    """A fact that two consoles find is stored once; a new sink begins behind it."""
    with database.writing.begin() as connection:
        notice_rows.insert_cursors(connection, ["one"])
    assert tell(database, notice(), notice()) == 1
    assert tell(database, notice(), notice(subject="other")) == 1
    with database.writing.begin() as connection:
        notice_rows.insert_cursors(connection, ["one", "two"])
        assert notice_rows.is_waiting(connection, "one")
        assert not notice_rows.is_waiting(connection, "two")
    assert claimed(database, "two", "a", NOW) == []
    assert claimed(database, "one", "a", NOW) == [1, 2]
    assert claimed(database, "one", "b", NOW + 30) == []
    advance(database, "one", "b", 2)
    advance(database, "one", "a", 1)
    assert claimed(database, "one", "b", NOW + 61) == [2]
    advance(database, "one", "b", 2)
    assert claimed(database, "one", "b", NOW + 62) == []


def test_a_sink_waits_for_no_console_of_another_time(database: Database) -> None:
    """The claim of a console that ended while its clock was ahead does not delay another console
    once the clock is right.
    """
    with write_to(database) as (connection, _):
        notice_rows.insert_cursors(connection, ["s"])
        notice_rows.insert_notices(
            connection, [over(known(), [])], base="http://c", site="console", now=NOW
        )
        connection.execute(notice_cursor.update().values(number=0))
        assert notice_rows.claim(connection, "s", "one", now=NOW + 86_400, limit=9)
        assert notice_rows.claim(connection, "s", "two", now=NOW + 86_400, limit=9) == []
        assert notice_rows.claim(connection, "s", "two", now=NOW, limit=9)


@pytest.mark.parametrize("is_emptied", [True, False])
def test_a_number_is_never_used_again(database: Database, is_emptied: bool) -> None:
    """No number is used twice, neither after the retention nor if an earlier version has emptied
    the table.
    """
    with database.writing.begin() as connection:
        notice_rows.insert_cursors(connection, ["one"])
    for each in ("a", "b", "c"):
        assert tell(database, notice(subject=each)) == 1
    claimed(database, "one", "x", NOW)
    advance(database, "one", "x", 3)
    with database.writing.begin() as connection:
        if is_emptied:
            connection.execute(delete(notice_table))
        else:
            delete_before(connection, NOW + 1_000_000, 500)
            left = connection.execute(select(notice_table.c.number)).scalars().all()
            assert left == [3]
    assert tell(database, notice(subject="d")) == 1
    assert claimed(database, "one", "x", NOW) == [4]


def test_incidents_are_kept_until_they_are_ended(database: Database) -> None:
    """A VM has one open incident: a newer one replaces it."""
    one = Incident(vm_id="vm-1", key="vms-1", kind="vm-silent", size=2)
    two = replace(one, vm_id="vm-2")
    moved = Incident(vm_id="vm-1", key="vm-1", kind="vm-not-back")
    with database.writing.begin() as connection:
        notice_rows.upsert_incidents(connection, "contact", [one, two], NOW)
        notice_rows.upsert_incidents(connection, "contact", [moved], NOW)
        assert notice_rows.incidents(connection, "contact") == {"vm-1": moved, "vm-2": two}
        notice_rows.delete_incidents(connection, "contact", ["vm-1", "vm-2", "vm-3"])
        notice_rows.delete_incidents(connection, "contact", [])
        assert notice_rows.incidents(connection, "contact") == {}


def test_a_vm_has_an_incident_of_its_contact_and_one_of_its_identity(database: Database) -> None:
    """The incident of a VM that is silent and that of its conflict are opened and ended apart."""
    silent = Incident(vm_id="vm-1", key="vm-1", kind="vm-silent")
    conflict = Incident(vm_id="vm-1", key="vm-1 conflict", kind="vm-conflict")
    with database.writing.begin() as connection:
        notice_rows.upsert_incidents(connection, "contact", [silent], NOW)
        notice_rows.upsert_incidents(connection, "identity", [conflict], NOW)
        notice_rows.delete_incidents(connection, "contact", ["vm-1"])
        assert notice_rows.incidents(connection, "contact") == {}
        assert notice_rows.incidents(connection, "identity") == {"vm-1": conflict}


class Memory(Sink[SinkSettings]):
    """A sink that keeps its records in memory."""

    KIND = "memory"
    Settings = SinkSettings

    def open(self) -> None:
        self.got: list[Record] = []

    def deliver(self, records: Sequence[Record]) -> None:
        self.got += records

    def check(self) -> list[Any]:
        return []

    def close(self) -> None:
        pass


def console_of(fleet: NoticedFleet) -> NoticeWorker:
    """Return the notices of a console that shows a fleet."""
    context = SinkContext(
        identity=lambda: VmIdentity(vm_id="c", name="c"),
        now=lambda: datetime.now(UTC),
        site="console",
        version="1",
        instance_id="i",
    )
    sink = Memory("memory", SinkSettings(kind="memory"), context)
    return NoticeWorker([sink], snapshots=fleet.snapshots, base="http://c", site="console")


def test_a_failed_write_loses_no_notice(database: Database) -> None:
    """A notice that the database refused is stored by the next check."""
    fleet, vm = NoticedFleet(database), FakeVm()
    fleet.say(vm.heartbeat(now=fleet.moment()))
    fleet.lose(vm)
    fleet.now = NOW + PATIENCE_SECONDS
    one, other = console_of(fleet), console_of(fleet)
    for each in (one, other):
        each._begun = each._begin()
    with database.writing.begin() as connection:
        connection.execute(text("ALTER TABLE incident RENAME TO away"))
    for _ in range(2):
        with pytest.raises(DatabaseFailedError):
            one._find_and_store(NOW)
    with database.writing.begin() as connection:
        connection.execute(text("ALTER TABLE away RENAME TO incident"))
    for each in (one, other, one):
        each._find_and_store(NOW)
    with database.reading.begin() as connection:
        assert connection.execute(select(notice_table.c.kind)).scalars().all() == ["vm-silent"]
    for each in (one, other):
        each.stop()


@pytest.mark.parametrize("service", sorted(TEMPLATES))
def test_the_documented_templates_take_notices(service: str) -> None:
    """The documented templates for Slack, Teams and PagerDuty show a notice's text and link, about
    events and VMs.
    """
    teller = Teller()
    lost = [vm(lost_at=NOW, name='web"1')]
    teller.due_notices(lost, NOW)
    told = [notice(), *teller.due_notices(lost, NOW + PATIENCE_SECONDS)]
    assert len(told) == 2
    for each in told:
        record = each.sealed(number=1, stream="s", base="http://console", site="console")
        body = render(compile_template(TEMPLATES[service]), record).body.decode()
        assert isinstance(json.loads(body), dict)
        assert json.dumps(each.title, ensure_ascii=False)[1:-1] in body
        assert f"http://console{each.path}" in body


def test_a_name_is_no_markup_in_a_chat() -> None:
    """A name with markup is shown as it is in Teams, and escaped in Slack."""
    name = "[log in](https://evil.example) <https://evil.example|log in> <!channel>"
    teller = Teller()
    lost = [vm(lost_at=NOW, name=name)]
    teller.due_notices(lost, NOW)
    (told,) = teller.due_notices(lost, NOW + PATIENCE_SECONDS)
    record = told.sealed(number=1, stream="s", base="http://console", site="console")
    slack = render(compile_template(TEMPLATES["Slack"]), record).body.decode()
    assert "<" not in slack
    teams = json.loads(render(compile_template(TEMPLATES["Teams"]), record).body)
    kinds = {each["type"] for each in elements(teams) if "evil" in str(each.get("text"))}
    assert kinds == {"TextRun"}
    assert all("evil" not in str(each.get("value")) for each in elements(teams))


def elements(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a JSON value."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, (dict, list)):
            yield from elements(each)


def test_two_consoles_on_one_host_are_two_to_a_broker() -> None:
    """Two consoles on one host have different client ids, which they keep over a restart."""
    declared = {"bus": {"kind": "mqtt", "host": "127.0.0.1"}}
    names = [
        read_sinks(declared, version="1", port=port)["bus"].context.vm.vm_id
        for port in (9470, 9471, 9470)
    ]
    assert names[0] == names[2] != names[1]


ENVELOPE = {
    "type": "object",
    "required": ["specversion", "id", "source", "type", "subject", "time", "data", "sequence"],
    "properties": {
        "specversion": {"const": "1.0"},
        "type": {"pattern": r"^seb\.console\.[a-z-]+\.v1$"},
        "data": {
            "type": "object",
            "required": ["vm", "notice"],
            "properties": {"notice": {"required": ["kind", "title", "text", "link", "key"]}},
        },
    },
}


def told_in(file: Path) -> list[dict[str, Any]]:
    """Return the notices in a file, each once, because a kill may repeat the last one."""
    if not file.exists():
        return []
    told = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    return list({each["id"]: each for each in told}.values())


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker of the test's own."""
    with Mosquitto(tmp_path / "broker") as running:
        yield running


def ids(hook: HttpServer) -> list[str]:
    """Return the ids of the notices that a webhook got."""
    return [each.headers["webhook-id"] for each in hook.requests()]


@pytest.fixture
def hook() -> Iterator[HttpServer]:
    """Return the settings of a chat's webhook."""
    with HttpServer() as running:
        yield running


def test_from_a_record_to_people_over_kill_9(
    broker: Mosquitto, hook: HttpServer, tmp_path: Path
) -> None:
    """The notices of a due decision and of its end reach a file, a webhook and a broker once each,
    with a link; a sink that was unreachable gets them in order after a kill.
    """
    file = tmp_path / "notices.jsonl"
    broker_settings = {"HOST": broker.host, "PORT": str(broker.port)}
    settings = {
        "PUBLIC_URL": "https://console.localhost",
        "SOURCE__BROKER__KIND": "mqtt",
        **{f"SOURCE__BROKER__{name}": value for name, value in broker_settings.items()},
        "SINK__FILE__PATH": str(file),
        "SINK__CHAT__KIND": "webhook",
        "SINK__CHAT__URL": hook.origin,
        "SINK__CHAT__SECRET": "whsec_c2VjcmV0IG9mIHRoZSBjaGF0IGZvciB0ZXN0cw==",
        "SINK__BUS__KIND": "mqtt",
        **{f"SINK__BUS__{name}": value for name, value in broker_settings.items()},
    }
    target = FakeVm(name="web-1")
    with (
        ConsoleProcess(tmp_path / "console", **settings) as console,
        SourcePublisher(broker) as fleet,
    ):
        hook.stop()
        fleet.retain(target, "status", target.status("online", commands=True))
        fleet.say(target, target.event("E"))
        eventually(lambda: len(told_in(file)) == 1, what="due")
        console.kill()
        hook.start()
        console.start()
        fleet.say(target, target.event("E", transition="started"))
        fleet.say(target, target.event("E", transition="ended"))
        eventually(lambda: len(told_in(file)) == 2, what="over")
        eventually(lambda: len(set(ids(hook))) == 2, what="the chat")
        found = told_in(file)
        assert [each["type"] for each in found] == [
            "seb.console.decision-due.v1",
            "seb.console.event-over.v1",
        ]
        assert found[0]["data"]["notice"]["link"] == "https://console.localhost/events/E"
        for each in found:
            Draft202012Validator(ENVELOPE).validate(each)
        metrics = console.http.get(f"{console.url}/metrics", timeout=5).text
        assert "seb_console_quarantined_total{" not in metrics
        assert 'seb_console_sink_up{sink="chat"} 1.0' in metrics
        assert set(console.vms()) == {"web-1"}
        assert console.stop() == 0
    assert list(dict.fromkeys(ids(hook))) == [each["id"] for each in found]
