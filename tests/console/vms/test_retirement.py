"""Retiring a VM over the API and on its page: who may do it, and what ends it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.console.records import FakeVm
from support.console.stage import ConsoleStage

ROLES = {"approver": ["user:ann"], "admin": ["user:adam"], "viewer": ["user:vic"]}
LOGIN = {
    "LOGIN__MODE": "proxy",
    "LOGIN__PROXIES": '["127.0.0.1"]',
    "ROLES": json.dumps(ROLES),
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


def contact(stage: ConsoleStage, vm: FakeVm) -> str:
    """Return how the VM is heard."""
    url = f"{stage.url}/api/v1/vms/{vm.vm_id}"
    found = stage.http.get(url, headers={"X-Forwarded-User": "vic"}, timeout=20)
    word: str = found.json()["contact"]
    return word


@pytest.mark.parametrize("who", ["ann", "adam"])
def test_an_approver_or_an_admin_retires_a_vm_until_it_is_heard(
    stage: ConsoleStage, who: str
) -> None:
    """An approver or an admin retires a VM, over the API or on its page, with a reason in the
    audit; its next record ends that.
    """
    ways: tuple[tuple[str, dict[str, Any], int], ...] = (
        ("/api/v1/vms/{}/retire", {"json": {"reason": "it was deleted"}}, 200),
        ("/vms/{}", {"data": {"action": "retire", "reason": "it was deleted"}}, 303),
    )
    for number, (path, sent, status) in enumerate(ways):
        vm = FakeVm(name=f"gone-{number}")
        stage.put(vm.heartbeat(now=stage.now))
        answer = post(stage, path.format(vm.vm_id), who, **sent)
        assert answer.status_code == status, answer.text
        assert contact(stage, vm) == "retired"
        assert post(stage, ways[0][0].format(vm.vm_id), who, **ways[0][1]).status_code == 409
        stage.now += timedelta(seconds=5)
        stage.put(vm.heartbeat(now=stage.now))
        assert contact(stage, vm) == "heard"
    rows = stage.http.get(
        f"{stage.url}/api/v1/audit", headers={"X-Forwarded-User": "adam"}, timeout=20
    ).text
    assert rows.count("vm_retired") == 2


def test_a_viewer_cannot_retire_a_vm(stage: ConsoleStage) -> None:
    """A viewer is refused and has no button; an unknown VM and an empty reason are refused too."""
    vm = FakeVm()
    stage.put(vm.heartbeat(now=stage.now))
    path = f"/api/v1/vms/{vm.vm_id}/retire"
    assert post(stage, path, "vic", json={"reason": "x"}).status_code == 403
    form = {"action": "retire", "reason": "x"}
    assert post(stage, f"/vms/{vm.vm_id}", "vic", data=form).status_code == 403
    assert post(stage, path, "ann", json={"reason": " "}).status_code == 422
    assert post(stage, "/api/v1/vms/nobody/retire", "ann", json={"reason": "x"}).status_code == 404
    assert contact(stage, vm) == "heard"
    for who, count in (("vic", 0), ("ann", 1)):
        headers = {"X-Forwarded-User": who}
        page = stage.http.get(f"{stage.url}/vms/{vm.vm_id}", headers=headers, timeout=20)
        assert page.text.count("Retire this VM") == count
