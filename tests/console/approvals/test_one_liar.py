"""One VM that holds only its own secrets, against a real console: what it cannot do to others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.console.broker import HeldBroker, held
from support.console.decision_bench import made_key
from support.console.records import FakeVm
from support.console.stage import ConsoleStage
from support.eventually import eventually

from console.access.tokens import add_token
from console.fleet.limits import (
    MAX_OPEN_EVENTS,
    MAX_OPEN_NAMES,
    MAX_RECEIPTS,
    MAX_UNRECOVERED,
)
from wire.record import PREPARATION, Record


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ConsoleStage]:
    """A console with a key and a broker, and an event of web-1 that is due."""
    key, _ = made_key(tmp_path / "keys")
    with ConsoleStage(tmp_path, KEY=str(key)) as running:
        yield running


@pytest.fixture
def broker(stage: ConsoleStage) -> HeldBroker:
    """The broker to which commands go."""
    return held(stage)


@pytest.fixture
def web(stage: ConsoleStage, broker: HeldBroker) -> FakeVm:
    """An honest VM, named by an event that is due."""
    del broker
    vm = FakeVm()
    stage.put(vm.heartbeat(now=stage.now))
    stage.takes_commands(vm)
    stage.put(vm.event("E", not_before=stage.moment(600), now=stage.now))
    assert event(stage)["decision"]["state"] == "due"
    return vm


def event(stage: ConsoleStage, **query: str) -> dict[str, Any]:
    """Return the event as the API shows it."""
    answer = stage.http.get(f"{stage.url}/api/v1/events/E", params=query, timeout=20)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def approve(stage: ConsoleStage, **query: str) -> Any:
    """Approve the event as it is shown."""
    body = {"fingerprint": event(stage, **query)["fingerprint"], "reason": "why not"}
    url = f"{stage.url}/api/v1/events/E/approve"
    return stage.http.post(url, json=body, params=query, timeout=20)


def lies(stage: ConsoleStage, liar: FakeVm) -> None:
    """Return everything that a VM can say of another's event."""
    now = stage.now
    for names in (["web-1"], ["web-1", liar.name], [liar.name]):
        for transition in ("scheduled", "started", "ended"):
            forged = {"not_before": stage.moment(600), "now": now, "resources": names}
            stage.put(liar.event("E", transition=transition, **forged))
    for state in ("accepted", "posted", "confirmed", "failed"):
        stage.put(liar.receipt("E", state, jti=f"made-up-{state}", now=now))


@pytest.mark.parametrize(
    "liar",
    [
        FakeVm(name="liar"),
        FakeVm(name="liar", group="group-9"),
        FakeVm(name="web-1", group="group-9", site="zurich"),
        FakeVm(name="web-1", vm_id="somebody-else"),
    ],
    ids=["peer", "other-group", "namesake-elsewhere", "namesake"],
)
def test_an_event_stays_due_and_is_approved_at_its_own_vm(
    stage: ConsoleStage, broker: HeldBroker, web: FakeVm, liar: FakeVm
) -> None:
    """Whatever another VM reports of an event, its decision stays due, and the command goes to the
    VM that the event names.
    """
    before = FakeVm(name="before", vm_id=liar.vm_id, stream="another")
    stage.put(before.heartbeat(now=stage.now - timedelta(hours=1)))
    stage.now += timedelta(seconds=1)
    peer = FakeVm(name="peer")
    stage.put(peer.event("E", resources=["web-1"], not_before=stage.moment(600), now=stage.now))
    stage.put(liar.heartbeat(now=stage.now))
    stage.takes_commands(liar)
    lies(stage, liar)
    found = event(stage)
    assert (found["state"], found["decision"]["state"]) == ("scheduled", "due")
    assert [each["name"] for each in found["resources"]] == ["web-1"]
    assert found["resources"][0]["vmId"] == web.vm_id
    assert approve(stage).status_code == 202
    eventually(lambda: len(broker.sent) == 1, what="the command")
    assert broker.claims(broker.sent[0])["aud"] == f"urn:seb:vm:{web.vm_id}"


def test_the_other_scope_is_named_by_a_parameter(
    stage: ConsoleStage, broker: HeldBroker, web: FakeVm
) -> None:
    """If two scopes have events with one id, both are marked as a conflict, on the page too, and a
    decision on one does not affect the other.
    """
    other = FakeVm(name="web-1", group="group-9")
    stage.now += timedelta(seconds=5)
    stage.put(other.heartbeat(now=stage.now))
    stage.takes_commands(other)
    stage.put(other.event("E", not_before=stage.moment(600), now=stage.now))
    scope = "sub-1/group-9"
    (conflict,) = event(stage)["conflicts"]
    assert (conflict["kind"], conflict["scope"]) == ("scope", scope)
    assert event(stage, scope=scope)["conflicts"][0]["scope"] == "sub-1/group-1"
    assert f"?scope={scope}" in stage.page("/events/E").replace("%2F", "/")
    assert approve(stage, scope=scope).status_code == 202
    assert event(stage)["decision"]["state"] == "due"
    assert approve(stage).status_code == 202
    eventually(lambda: len(broker.sent) == 2, what="both commands")
    assert {broker.claims(each)["aud"] for each in broker.sent} == {
        f"urn:seb:vm:{vm.vm_id}" for vm in (web, other)
    }
    missing = stage.http.get(f"{stage.url}/api/v1/events/E?scope=no/where", timeout=20)
    assert missing.status_code == 404


@pytest.mark.parametrize("group", ["group-1", "group-9"])
def test_a_vm_of_another_site_shows_nothing_to_its_site(
    stage: ConsoleStage, web: FakeVm, group: str
) -> None:
    """A VM that reports an event of another site does not show it to its own site, neither the
    event nor its timeline; a token of the event's site still decides about it.
    """
    liar = FakeVm(name="liar", site="zurich", group=group)
    stage.put(liar.heartbeat(now=stage.now))
    lies(stage, liar)
    tokens = {}
    for site in ("default", "zurich"):
        tokens[site] = add_token(
            stage.console.database,
            f"of-{site}",
            role="approver",
            site=site,
            days=1,
            actor="test",
            now=time.time(),
        )
    eventually(lambda: read(stage, tokens["default"]).status_code == 200, what="the token")
    own = read(stage, tokens["default"]).json()
    assert own["resources"][0]["vmId"] == web.vm_id
    assert {each["vmId"] for each in own["witnesses"]} == {web.vm_id}
    seen = read(stage, tokens["zurich"])
    if seen.status_code == 200:  # its own scope's event of that id, which names the liar alone
        assert web.vm_id not in seen.text
        assert "sub-1/group-1" not in seen.text
    answer = stage.http.post(
        f"{stage.url}/api/v1/events/E/approve",
        json={"fingerprint": own["fingerprint"], "reason": "why not"},
        headers={"Authorization": f"Bearer {tokens['default']}"},
        timeout=20,
    )
    assert answer.status_code == 202, answer.text


def read(stage: ConsoleStage, token: str) -> Any:
    """Return the event as a token sees it."""
    headers = {"Authorization": f"Bearer {token}"}
    return stage.http.get(f"{stage.url}/api/v1/events/E", headers=headers, timeout=20)


def test_invented_events_are_bounded_and_push_nothing_away(
    stage: ConsoleStage, web: FakeVm
) -> None:
    """If one VM invents 3,000 events that are due sooner, the real decision stays on the first
    page, in the list and due.
    """
    del web
    liar = FakeVm(name="liar")
    stage.put(liar.heartbeat(now=stage.now))
    stage.takes_commands(liar)
    soon = {"not_before": stage.moment(60), "now": stage.now}
    stage.put(*(liar.event(f"X-{n}", **soon) for n in range(1500)))  # type: ignore[arg-type]
    others = (liar.event(f"Y-{n}", resources=["web-1"], **soon) for n in range(1500))  # type: ignore[arg-type]
    stage.put(*others)
    items = stage.http.get(f"{stage.url}/api/v1/overview", timeout=20).json()
    assert items["decisionsDue"] == MAX_OPEN_EVENTS + 1
    assert event(stage)["decision"]["state"] == "due"
    for path in ("/", "/decide"):
        assert "/events/E" in stage.page(path)
    quarantine = stage.http.get(f"{stage.url}/api/v1/quarantine", timeout=20).json()["items"]
    counts = {each["reason"]: each["count"] for each in quarantine}
    assert counts == {"too_many_events": 3000 - MAX_OPEN_EVENTS}
    stage.put(liar.event("X-0", transition="ended", now=stage.now))
    stage.put(liar.event("X-NEW", **soon))
    assert stage.http.get(f"{stage.url}/api/v1/events/X-NEW", timeout=20).status_code == 200


def quarantined(stage: ConsoleStage) -> dict[str, int]:
    """Return how many messages were quarantined, by reason."""
    items = stage.http.get(f"{stage.url}/api/v1/quarantine", timeout=20).json()["items"]
    return {each["reason"]: each["count"] for each in items}


def test_events_that_were_over_are_bounded_when_they_come_back(
    stage: ConsoleStage, web: FakeVm
) -> None:
    """A VM that reports as many open events as it may cannot open any of its past ones again."""
    liar = FakeVm(name="liar")
    over = [f"OVER-{number}" for number in range(3)]
    stage.put(*(liar.event(each, transition="ended", now=stage.now) for each in over))
    stage.put(*(liar.event(f"X-{n}", now=stage.now) for n in range(MAX_OPEN_EVENTS)))
    stage.put(*(liar.event(each, now=stage.now) for each in over))
    assert quarantined(stage) == {"too_many_events": 3}
    stage.put(web.event("E-2", now=stage.now))
    assert quarantined(stage) == {"too_many_events": 3}


def test_names_are_bounded_over_all_open_events_of_a_vm(stage: ConsoleStage, web: FakeVm) -> None:
    """The names in all open events of one VM are limited, also if an event that named few VMs is
    changed. Events of other VMs do not count for it.
    """
    liar = FakeVm(name="liar")
    names = [f"vm-{number}" for number in range(MAX_OPEN_NAMES // 4 - 1)]
    stage.put(*(liar.event(f"X-{n}", resources=names, now=stage.now) for n in range(4)))
    assert quarantined(stage) == {}
    stage.put(liar.event("SMALL", now=stage.now))
    stage.put(liar.event("SMALL", resources=names, now=stage.now))
    stage.put(liar.event("LARGE", resources=names, now=stage.now))
    assert quarantined(stage) == {"too_many_names": 2}
    stage.put(web.event("E-2", resources=names, now=stage.now))
    stage.put(liar.event("X-0", resources=names, transition="ended", now=stage.now))
    stage.put(liar.event("LARGE", resources=names, now=stage.now))
    assert quarantined(stage) == {"too_many_names": 2}


def test_receipts_and_preparations_are_bounded(stage: ConsoleStage, web: FakeVm) -> None:
    """The receipts of one VM about one event, and its preparations for invented events, are
    limited; those of other VMs are accepted.
    """
    liar = FakeVm(name="liar")

    def prepares(vm: FakeVm, event_id: str, state: str = "preparing") -> Record:
        fingerprint = "sha256:" + "0" * 64
        fields = {"evt": event_id, "evh": fingerprint, "sink": "drain", "cause": "deadline"}
        data = {**fields, "reason": None, "state": state}
        return vm.record(PREPARATION, data, now=stage.now)

    stage.put(*(prepares(liar, f"X-{number}") for number in range(MAX_UNRECOVERED + 7)))
    assert quarantined(stage) == {"too_many_preparations": 7}
    stage.put(prepares(liar, "X-0", "recovered"), prepares(liar, "NEW"), prepares(web, "E"))
    made_up = (f"made-up-{number}" for number in range(MAX_RECEIPTS + 5))
    stage.put(*(liar.receipt("E", "failed", jti=jti, now=stage.now) for jti in made_up))
    stage.put(liar.receipt("E-2", "failed", now=stage.now), web.receipt("E", "failed"))
    assert quarantined(stage) == {"too_many_preparations": 7, "too_many_receipts": 5}
