"""Attempts to decide without permission, on a real console: none has an effect."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import count
from typing import Any
from urllib.parse import urlencode

import pytest
import requests
from support.console.decision_bench import made_key
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually

from console.access.tokens import add_token, end_token
from console.config.settings import ConsoleSettings, Role
from console.db.connection.opening import Database, database_url

_ROLES = json.dumps(
    {
        "viewer": ["user:val", "user:vera"],
        "approver": ["user:ann", "user:abe"],
        "admin": ["user:root", "user:rob"],
    },
)
_NUMBERS = count()
_DECIDED = {"approve", "approve_first", "approve_second", "leave"}
EVENT = "E-1"


class AttackedConsole:
    """A console with an event that could be approved at once, because a VM that it names polls for
    commands.
    """

    def __init__(self, console: ConsoleProcess) -> None:
        self.console = console
        self.vm = FakeVm(site="north")
        assert console.post(self.vm.event(EVENT)).status_code == 204
        lines = console.run("enroll", self.vm.vm_id).stdout.split()
        self.pull = next(x for x in lines if x.startswith("SEB_COMMANDS__PULL_TOKEN=")).partition(
            "="
        )[2]
        eventually(lambda: self.ask().status_code == 204, what="an answer to the VM")
        eventually(
            lambda: self.event_item()["decision"]["state"] == "due", what="a decision that is due"
        )

    def ask(self) -> requests.Response:
        """Poll for the VM's commands."""
        return self.console.http.get(
            f"{self.console.url}/pull/v1/commands",
            params={"vm": self.vm.vm_id, "wait": "0"},
            headers={"Authorization": f"Bearer {self.pull}"},
            timeout=10,
        )

    def token(
        self,
        name: str,
        *,
        role: Role = "approver",
        site: str | None = None,
        days: float = 1,
        revoked: bool = False,
    ) -> str:
        """Make a bearer token beside the running console, as the command does."""
        name, now = f"{name}-{next(_NUMBERS)}", time.time()
        database = Database(database_url(ConsoleSettings(state_dir=self.console.directory)))
        try:
            database.join()
            made = add_token(database, name, role=role, site=site, days=days, actor="me", now=now)
            if revoked:
                end_token(database, name, actor="me", now=now)
        finally:
            database.close()
        if days and not revoked:
            eventually(lambda: self._opens(made), what="the token")
        return made

    def _opens(self, token: str) -> bool:
        headers = {"Authorization": f"Bearer {token}"}
        address = f"{self.console.url}/api/v1/overview"
        return self.console.http.get(address, headers=headers, timeout=10).status_code != 401

    def event_item(self) -> dict[str, Any]:
        """Return the event as a viewer sees it."""
        headers = {"X-Forwarded-User": "val"}
        address = f"{self.console.url}/api/v1/events/{EVENT}"
        found = self.console.http.get(address, headers=headers, timeout=10)
        item: dict[str, Any] = found.json()
        return item if found.status_code == 200 else {"decision": {"state": None}}

    def body(self) -> bytes:
        """Return the body that approves or leaves the event."""
        return json.dumps(
            {"fingerprint": self.event_item()["fingerprint"], "reason": "test"}
        ).encode()

    def form(self) -> bytes:
        """Return the same as a form of the pages."""
        fields = {"action": "approve", "reason": "test", "seen": json.dumps(self.event_item())}
        return urlencode(fields).encode()

    def assert_untouched(self) -> None:
        """Check that nothing is decided, that the audit has no decision, and that the VM gets no
        command.
        """
        assert self.event_item()["decision"]["state"] in ("due", "none")
        for action in _DECIDED:
            assert self.console.audit(action) == []
        assert self.ask().status_code == 204


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedConsole]:
    """A console behind a proxy on this machine."""
    directory = tmp_path_factory.mktemp("console")
    key, _ = made_key(directory / "keys")
    settings = {
        "LOGIN__MODE": "proxy",
        "LOGIN__PROXIES": '["127.0.0.1"]',
        "ROLES": _ROLES,
        "KEY": str(key),
        "PULL": "true",
        "SILENT_AFTER": "86400",
        "PUBLIC_URL": "https://console.example",
    }
    with ConsoleProcess(directory, **settings) as console:
        yield AttackedConsole(console)


_API = ("POST", f"/api/v1/events/{EVENT}/approve", "application/json")
_LEAVE = ("POST", f"/api/v1/events/{EVENT}/leave", "application/json")
_FORM = ("POST", f"/events/{EVENT}", "application/x-www-form-urlencoded")
_SEVERAL = ("POST", "/decide/confirm", "application/x-www-form-urlencoded")
WAYS = pytest.mark.parametrize("way", [_API, _LEAVE, _FORM, _SEVERAL], ids=lambda way: way[1])


def send(
    target: AttackedConsole,
    way: tuple[str, str, str],
    headers: dict[str, str],
    *,
    source: str = "127.0.0.1",
) -> tuple[int, str]:
    """Send a raw request without additions; return status and body."""
    method, path, kind = way
    body = target.body() if kind == "application/json" else target.form()
    connection = HTTPConnection("127.0.0.1", target.console.port, 10, source_address=(source, 0))
    try:
        whole = {"Host": f"127.0.0.1:{target.console.port}", "Content-Type": kind} | headers
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in whole.items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@WAYS
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"X-Forwarded-User": ""}, 401),
        ({"X-Forwarded-User": "eve"}, 403),
        ({"X-Forwarded-User": "val"}, 403),
        ({"X-Forwarded-User": "root"}, 403),
        ({"X-Forwarded-User": "eve", "X-Forwarded-Groups": "approver, user:ann"}, 403),
        ({"X-Forwarded-User": "ann", "Authorization": "Bearer sebc_guess"}, 401),
        ({"Cookie": "seb-session=guess; __Host-seb-session=guess"}, 401),
        ({"X-Forwarded-User": "ann", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"X-Forwarded-User": "ann", "Sec-Fetch-Site": "same-site"}, 403),
        ({"X-Forwarded-User": "ann", "Sec-Fetch-Site": "none"}, 403),
        (
            {"X-Forwarded-User": "ann", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
            403,
        ),
        ({"X-Forwarded-User": "ann", "Origin": "https://evil.example"}, 403),
        ({"X-Forwarded-User": "ann", "Origin": "null"}, 403),
        ({"X-Forwarded-User": "ann", "Host": "evil.example"}, 421),
        ({"X-Forwarded-User": "ann", "Host": "console.example.evil.example"}, 421),
        ({"X-Forwarded-User": "ann", "Host": "console.example@evil.example"}, 421),
        ({"X-Forwarded-User": "ann", "Host": ""}, 421),
    ],
    ids=str,
)
def test_a_person_without_the_role_is_refused(
    target: AttackedConsole, way: tuple[str, str, str], headers: dict[str, str], status: int
) -> None:
    """The API, the event's form and the list's form refuse a person without the role."""
    assert send(target, way, headers)[0] == status
    target.assert_untouched()


@WAYS
def test_a_header_from_elsewhere_is_not_a_proxys(
    target: AttackedConsole, way: tuple[str, str, str]
) -> None:
    """Only the connection's own address makes a proxy, whatever the headers say."""
    forged = {
        "X-Forwarded-User": "ann",
        "X-Forwarded-For": "127.0.0.1",
        "Forwarded": "for=127.0.0.1",
        "X-Real-IP": "127.0.0.1",
    }
    assert send(target, way, forged, source="127.0.0.2")[0] == 401
    target.assert_untouched()


@WAYS
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"])
def test_only_post_decides(target: AttackedConsole, way: tuple[str, str, str], method: str) -> None:
    """Any other method decides nothing, whatever the request contains."""
    query = urlencode({"action": "approve", "reason": "x", "fingerprint": "y"})
    for path in (way[1], f"{way[1]}?{query}"):
        status, _ = send(target, (method, path, way[2]), {"X-Forwarded-User": "ann"})
        assert status in (200, 400, 404, 405, 422)
    target.assert_untouched()


def test_methods_are_not_overridden(target: AttackedConsole) -> None:
    """A header or field that names another method has no effect."""
    for name in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
        send(target, ("GET", *_API[1:]), {"X-Forwarded-User": "ann", name: "POST"})
    target.assert_untouched()


@WAYS
def test_tokens_that_open_nothing(target: AttackedConsole, way: tuple[str, str, str]) -> None:
    """Expired and revoked tokens, tokens of another role or site, and the VM's own are refused."""
    expected = {
        target.token("ended", days=0): (401,),
        target.token("revoked", revoked=True): (401,),
        target.pull: (401,),
        target.token("viewer", role="viewer"): (403,),
        target.token("admin", role="admin"): (403,),
        target.token("south", site="south"): (403, 404),
    }
    for token, statuses in expected.items():
        status, text = send(target, way, {"Authorization": f"Bearer {token}"})
        assert status in statuses
        assert target.vm.name not in text
    target.assert_untouched()


def test_a_token_of_another_site_learns_nothing(target: AttackedConsole) -> None:
    """A token of another site gets the same answer as for an event that does not exist."""
    token = target.token("learner", site="south")
    headers = {"Authorization": f"Bearer {token}"}
    for what in ("approve", "leave"):
        there = send(target, ("POST", f"/api/v1/events/{EVENT}/{what}", _API[2]), headers)
        nowhere = send(target, ("POST", f"/api/v1/events/E-0/{what}", _API[2]), headers)
        assert there == nowhere
        assert there[0] == 404
    for path in ("/audit", "/api/v1/audit", "/api/v1/quarantine"):
        assert send(target, ("GET", path, _API[2]), headers)[0] == 403
    target.assert_untouched()


def test_refused_attempts_are_in_the_audit(target: AttackedConsole) -> None:
    """A refused attempt is in the audit with name, event and reason, and the chain is unchanged."""
    for user in ("vera", "rob"):  # whose budget no other test has used
        send(target, _API, {"X-Forwarded-User": user})
    send(target, _API, {"X-Forwarded-User": "abe", "Sec-Fetch-Site": "cross-site"})
    token = target.token("elsewhere", site="south")
    send(target, _API, {"Authorization": f"Bearer {token}"})
    rows = target.console.audit("refused")
    elsewhere = next(row["actor"] for row in rows if row["reason"] == "other_site")
    assert elsewhere.startswith("token:")
    found = {(row["actor"], row["reason"]) for row in rows if row.get("eventId") == EVENT}
    assert {
        ("vera", "not_allowed"),
        ("rob", "not_allowed"),
        (elsewhere, "other_site"),
    } <= found
    assert ("abe", "cross_site") in {(row["actor"], row["reason"]) for row in rows}
    assert target.console.run("audit", "verify").returncode == 0


def test_roles_are_in_the_audit_when_they_change(target: AttackedConsole) -> None:
    """A start with the same roles adds no row, and one with others adds the new roles."""
    console = target.console
    assert [row["approver"] for row in console.audit("roles_changed")] == [["user:abe", "user:ann"]]
    before = console.environ["SEB_CONSOLE_ROLES"]
    changed = json.dumps(json.loads(before) | {"approver": ["user:ann", "group:ops"]})
    try:
        for roles, count in ((before, 1), (changed, 2)):
            console.stop()
            console.environ["SEB_CONSOLE_ROLES"] = roles
            console.start()
            assert len(console.audit("roles_changed")) == count
    finally:
        console.stop()
        console.environ["SEB_CONSOLE_ROLES"] = before
        console.start()
    rows = console.audit("roles_changed")
    assert [row["approver"] for row in rows][1] == ["group:ops", "user:ann"]
    assert (rows[-1]["login"], rows[-1]["proxies"]) == ("proxy", ["127.0.0.1"])


def test_an_approver_decides(target: AttackedConsole) -> None:
    """An approver's request, from which all attacks differ, gives the VM a command."""
    assert target.console.post(target.vm.heartbeat()).status_code == 204
    eventually(lambda: target.ask().status_code == 204, what="an answer to the VM")
    eventually(
        lambda: target.event_item()["decision"]["state"] == "due", what="a decision that is due"
    )
    status, text = send(target, _API, {"X-Forwarded-User": "ann"})
    assert status == 202, text
    eventually(lambda: target.ask().status_code == 200, what="the command")
    assert [row["actor"] for row in target.console.audit("approve")] == ["ann"]
