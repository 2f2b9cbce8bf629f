"""Accepting the changed identity of a VM, over the API and on its page, and together with an
enrolment.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.console.records import FakeVm
from support.console.stage import ConsoleStage

from console.access.tokens import add_token

LOGIN = {
    "LOGIN__MODE": "proxy",
    "LOGIN__PROXIES": '["127.0.0.1"]',
    "ROLES": json.dumps({"approver": ["user:ann"], "admin": ["user:adam"], "viewer": ["user:vic"]}),
}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ConsoleStage]:
    """A console with a login."""
    with ConsoleStage(tmp_path, **LOGIN) as running:
        yield running


def post(stage: ConsoleStage, path: str, who: str, **sent: Any) -> Any:
    """Send a POST as a person."""
    headers = {"X-Forwarded-User": who}
    url = stage.url + path
    return stage.http.post(url, headers=headers, timeout=20, allow_redirects=False, **sent)


def get(stage: ConsoleStage, path: str, who: str = "vic") -> Any:
    """Send a GET as a person."""
    return stage.http.get(stage.url + path, headers={"X-Forwarded-User": who}, timeout=20)


def test_a_conflict_is_shown_until_an_admin_accepts_it(stage: ConsoleStage) -> None:
    """A conflict is shown on the VM and its event, in the API and on the pages, until it is
    accepted; only an admin may accept it.
    """
    vm = FakeVm()
    stage.put(vm.event("E", now=stage.now))
    moved = replace(vm, group="group-9")
    stage.put(moved.heartbeat(now=stage.now))
    path = f"/vms/{vm.vm_id}"
    found = get(stage, f"/api/v1{path}").json()
    conflict = found["conflict"]
    assert (found["resourceGroup"], conflict["said"]["resourceGroup"]) == ("group-1", "group-9")
    assert not conflict["isTaken"]
    (shown,) = get(stage, "/api/v1/events/E").json()["conflicts"]
    assert (shown["kind"], shown["vmId"], shown["name"]) == ("vm", vm.vm_id, "web-1")
    assert "in conflict about its own name" in get(stage, "/events/E").text
    page = get(stage, path).text
    assert "It reports another identity than before" in page
    assert "Accept what it says" not in page
    assert conflict["id"] in get(stage, path, "adam").text
    accept = f"/api/v1{path}/accept"
    assert post(stage, accept, "ann", json={}).status_code == 403
    assert post(stage, f"/vms/{vm.vm_id}/accept", "vic", data={"conflict": "x"}).status_code == 403
    assert post(stage, accept, "adam", json={"conflict": "another"}).status_code == 409
    assert post(stage, "/api/v1/vms/unknown/accept", "adam", json={}).status_code == 404
    answer = post(stage, accept, "adam", json={"conflict": conflict["id"]})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["resourceGroup"], answer.json()["conflict"]) == ("group-9", None)
    (event,) = get(stage, "/api/v1/events").json()["items"]
    assert (event["scope"], event["conflicts"]) == ("sub-1/group-9", [])


def test_a_token_of_one_site_accepts_no_vm(stage: ConsoleStage) -> None:
    """A token of one site cannot accept a VM, because the new name may be that of a VM of another
    site.
    """
    vm = FakeVm(site="north")
    stage.put(vm.heartbeat(now=stage.now))
    stage.put(replace(vm, name="web-9").heartbeat(now=stage.now))
    made = {"role": "admin", "days": 1, "actor": "test", "now": time.time()}
    token = add_token(stage.state.database, "of-a-site", site="north", **made)  # type: ignore[arg-type]
    answer = stage.http.post(
        f"{stage.url}/api/v1/vms/{vm.vm_id}/accept",
        json={},
        headers={"Authorization": f"Bearer {token}"},
        timeout=20,
    )
    assert answer.status_code == 403
    assert get(stage, f"/api/v1/vms/{vm.vm_id}").json()["name"] == "web-1"


def test_the_button_of_the_page_accepts(stage: ConsoleStage) -> None:
    """The button accepts the identity that the page showed, with a row of the audit; a form without
    it has no effect.
    """
    vm = FakeVm()
    stage.put(vm.heartbeat(now=stage.now))
    stage.put(replace(vm, name="web-9").heartbeat(now=stage.now))
    seen = get(stage, f"/api/v1/vms/{vm.vm_id}").json()["conflict"]["id"]
    path = f"/vms/{vm.vm_id}/accept"
    assert post(stage, path, "adam", data={"conflict": ""}).status_code == 422
    assert post(stage, path, "adam", data={"conflict": seen}).status_code == 303
    assert get(stage, f"/api/v1/vms/{vm.vm_id}").json()["name"] == "web-9"
    assert "vm_accepted" in get(stage, "/api/v1/audit", "adam").text
    assert "accepted the identity that a VM reports" in get(stage, "/audit", "adam").text
