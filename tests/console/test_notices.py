"""What the console tells people: once, in order, over kill -9, to sinks of the bridge's kinds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from support.console.mqtt import Fleet as Publisher
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto
from support.sinks.http_server import HttpServer

from console.fleet.contact import Ears
from console.fleet.index import Fleet
from console.fleet.values import Event, Past, Sighting, Vm
from console.notices.events import Ending, approval_failed, of_open, over
from console.notices.notice import Notice
from console.notices.vms import MANY, PATIENCE, RETURN_SECONDS, VmWatch
from console.records.incoming import EventFacts
from console.store import notices as store
from console.store.opening import Database
from console.store.writing import next_number
from sinks.webhook.template import compile_template, render

NOW = 1_800_000_000.0
DOCS = Path(__file__).parents[2] / "docs" / "webhook-templates.md"
TEMPLATES = dict(
    re.findall(
        r"^## (\w+)\n.*?```jinja\n(.*?)```", DOCS.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
)


def facts(**given: Any) -> EventFacts:
    """What a witness says of an event."""
    said: dict[str, Any] = {
        "event_id": "E",
        "event_type": "Reboot",
        "event_source": "Platform",
        "status": "Scheduled",
        "not_before": None,
        "description": "maintenance",
        "duration": 30,
        "resources": ("web-1",),
        "transition": "scheduled",
        "affects": True,
        "impact": "restart",
        "revision": 1,
        "fingerprint": "sha256:1",
    }
    return EventFacts(**said | given)


def past(at: float = NOW, **given: Any) -> Past:
    """An event as its one witness, web-1, shows it."""
    seen = Sighting(
        event_id="E",
        vm_id="vm-1",
        record_id="r",
        stream="s",
        sequence=1,
        time=at,
        first_at=at,
        facts=facts(**given),
    )
    state = seen.facts.state
    event = Event(event_id="E", state=state, shown_by="vm-1", shown_at=at, first_at=at)
    return Past(event=event, witnesses={"vm-1": seen})


def vm(number: int = 1, **given: Any) -> Vm:
    """A VM that was heard at NOW."""
    said: dict[str, Any] = {"vm_id": f"vm-{number}", "name": f"web-{number}", "heard_at": NOW}
    scope = {"subscription_id": "s", "resource_group": "g", "heard_by": "web"}
    return Vm(**said | scope | given)


def fleet_of(*vms: Vm) -> Fleet:
    """A fleet of these."""
    fleet = Fleet()
    for each in vms:
        fleet.put_vm(each)
    return fleet


EARS = Ears(started_at=NOW - 86_400, since={"web": NOW - 86_400})


def kinds(found: list[Notice]) -> list[tuple[str, str]]:
    """What was found, in short."""
    return [(each.kind, each.subject) for each in found]


def test_a_decision_that_is_due_is_told_and_told_again_before_its_time() -> None:
    """Once when it falls due, and once five minutes before notBefore; then never again."""
    item = {
        "eventId": "E",
        "eventType": "Reboot",
        "fingerprint": "f",
        "notBefore": "2027-01-15T08:15:00.000Z",
        "decision": {"state": "due"},
        "resources": [{"name": "web-1", "vmId": "vm-1"}],
    }
    early = of_open(item, NOW)
    assert kinds(early) == [("decision-due", "E")]
    assert early[0].title == "Reboot of web-1: a decision is due"
    late = of_open(item, NOW + 601)
    assert kinds(late) == [("decision-due", "E"), ("undecided", "E")]
    assert late[0].id == early[0].id
    assert of_open(item | {"decision": {"state": "left"}}, NOW + 601) == []


def test_an_end_says_what_it_cost() -> None:
    """The longest interruption that a named VM measured."""
    told = over(past(transition="ended", status="Completed", pause=4.25))
    assert told.text.endswith("The longest interruption measured: 4.2 s.")
    assert told.more == {"interruptionSeconds": 4.25}


def test_an_approval_that_failed_names_who_gave_it_and_why() -> None:
    """With and without the event in sight; what a person typed cannot turn the line."""
    ending = Ending(
        id="d", event_id="E", outcome="rejected", reason="the\u202e end", by="a", at=NOW
    )
    assert (
        approval_failed(ending, past()).title == "Reboot of web-1: the approval of a was rejected"
    )
    alone = approval_failed(ending, None)
    assert "\u202e" not in alone.text
    assert "\\u202e" in alone.text


def test_a_silent_vm_is_told_once_and_once_when_it_is_heard_again() -> None:
    """A connection that comes back within half a minute is not worth a word."""
    watch, lost = VmWatch({}), fleet_of(vm(lost_at=NOW))
    assert watch.look(lost, [], NOW, EARS) == []
    assert watch.look(fleet_of(vm(heard_at=NOW + 5)), [], NOW + 5, EARS) == []
    assert watch.look(lost, [], NOW + 10, EARS) == []
    found = watch.look(lost, [], NOW + 10 + PATIENCE, EARS)
    assert kinds(found) == [("vm-silent", "vm-1")]
    assert watch.look(lost, [], NOW + 20 + PATIENCE, EARS) == []
    back = fleet_of(vm(heard_at=NOW + 99))
    assert kinds(watch.look(back, [], NOW + 99, EARS)) == [("vm-heard", "vm-1")]
    assert watch.look(back, [], NOW + 100, EARS) == []


def test_what_was_told_before_a_restart_is_not_told_again() -> None:
    """Another run knows the last word about each VM."""
    lost = fleet_of(vm(lost_at=NOW))
    watch = VmWatch({"vm-1": "vm-silent"})
    assert watch.look(lost, [], NOW, EARS) == []
    assert watch.look(lost, [], NOW + PATIENCE, EARS) == []
    found = watch.look(fleet_of(vm(heard_at=NOW + 50)), [], NOW + 50, EARS)
    assert kinds(found) == [("vm-heard", "vm-1")]


def test_many_silent_vms_are_one_notice() -> None:
    """A broker that is away must not page four hundred times."""
    lost = fleet_of(*(vm(number, lost_at=NOW) for number in range(MANY + 1)))
    watch = VmWatch({})
    watch.look(lost, [], NOW, EARS)
    (told,) = watch.look(lost, [], NOW + PATIENCE, EARS)
    assert told.title == f"{MANY + 1} VMs are silent"
    assert len(told.more["vmIds"]) == MANY + 1


@pytest.mark.parametrize("is_past", [True, False])
def test_a_vm_that_does_not_come_back_from_its_event(is_past: bool) -> None:
    """Silence during its event is expected; after its time it is told as what it is."""
    transition = "ended" if is_past else "started"
    status = "Completed" if is_past else "Started"
    seen = past(NOW + 1, transition=transition, status=status)
    fleet = fleet_of(vm(lost_at=NOW))
    if not is_past:
        fleet.put_event(seen.event, seen.witnesses.values())
    watch, ended = VmWatch({}), [seen] if is_past else []
    for seconds in (1, PATIENCE + 2, RETURN_SECONDS):
        assert watch.look(fleet, ended, NOW + seconds, EARS) == []
    found = watch.look(fleet, ended, NOW + RETURN_SECONDS + 40, EARS)
    assert kinds(found) == [("vm-not-back", "vm-1")]
    assert watch.look(fleet, ended, NOW + RETURN_SECONDS + 50, EARS) == []


@pytest.mark.parametrize("kind", ["Terminate", "Preempt"])
def test_a_deleted_vm_is_not_awaited(kind: str) -> None:
    """What its event deletes does not come back; that it is silent is told."""
    seen = past(NOW + 1, event_type=kind, impact="delete", transition="started", status="Started")
    fleet = fleet_of(vm(lost_at=NOW))
    fleet.put_event(seen.event, seen.witnesses.values())
    watch = VmWatch({})
    watch.look(fleet, [], NOW, EARS)
    assert kinds(watch.look(fleet, [], NOW + PATIENCE, EARS)) == [("vm-silent", "vm-1")]


def notice(**given: Any) -> Notice:
    """Something to tell."""
    return replace(over(past(transition="ended", status="Completed")), **given)


def test_a_fact_is_stored_once_and_each_sink_has_its_place(database: Database) -> None:
    """Two consoles that find the same fact tell it once; a new sink begins behind it."""

    def tell(*found: Notice) -> int:
        with database.writing.begin() as connection:
            next_number(connection)
            return store.tell(connection, found, base="http://c", site="console")

    with database.writing.begin() as connection:
        store.add_sinks(connection, ["one"])
    assert tell(notice(), notice()) == 1
    assert tell(notice(), notice(subject="other")) == 1
    with database.writing.begin() as connection:
        store.add_sinks(connection, ["one", "two"])
        assert (store.place(connection, "one"), store.place(connection, "two")) == (0, 2)
        first, second = store.waiting(connection, 0, 10)
        assert [first.sequence, second.sequence] == [1, 2]
        assert first.stream == second.stream
        assert store.claim(connection, "one", "a", NOW)
        assert not store.claim(connection, "one", "b", NOW + 30)
        store.advance(connection, "one", "b", 2)
        assert store.place(connection, "one") == 0
        assert store.claim(connection, "one", "b", NOW + 61)
        store.advance(connection, "one", "b", 2)
        assert store.place(connection, "one") == 2


@pytest.mark.parametrize("service", sorted(TEMPLATES))
def test_the_documented_templates_take_notices(service: str) -> None:
    """Slack, Teams and PagerDuty get the notice's words and its link, about events and VMs."""
    watch = VmWatch({})
    lost = fleet_of(vm(lost_at=NOW, name='web"1'))
    watch.look(lost, [], NOW, EARS)
    told = [notice(), *watch.look(lost, [], NOW + PATIENCE, EARS)]
    assert len(told) == 2
    for each in told:
        record = each.sealed(number=1, stream="s", base="http://console", site="console")
        body = render(compile_template(TEMPLATES[service]), record).body.decode()
        assert isinstance(json.loads(body), dict)
        assert json.dumps(each.title, ensure_ascii=False)[1:-1] in body
        assert f"http://console{each.path}" in body


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
    """The notices in a file, each once: a kill may bring the last one again."""
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
    """The ids of what a webhook got."""
    return [each.headers["webhook-id"] for each in hook.requests()]


@pytest.fixture
def hook() -> Iterator[HttpServer]:
    """A chat's webhook."""
    with HttpServer() as running:
        yield running


def test_from_a_record_to_people_over_kill_9(
    broker: Mosquitto, hook: HttpServer, tmp_path: Path
) -> None:
    """Due and over reach a file, a webhook and a broker, each once, with a link; a sink that was
    away gets them in order after a kill.
    """
    file = tmp_path / "notices.jsonl"
    broker_settings = {"HOST": broker.host, "PORT": str(broker.port)}
    settings = {
        "PUBLIC_URL": "https://console.example",
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
        Publisher(broker) as fleet,
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
        assert found[0]["data"]["notice"]["link"] == "https://console.example/events/E"
        for each in found:
            Draft202012Validator(ENVELOPE).validate(each)
        metrics = console.http.get(f"{console.url}/metrics", timeout=5).text
        assert "seb_console_quarantined_total{" not in metrics
        assert 'seb_console_sink_up{sink="chat"} 1.0' in metrics
        assert set(console.vms()) == {"web-1"}
        assert console.stop() == 0
    assert list(dict.fromkeys(ids(hook))) == [each["id"] for each in found]
