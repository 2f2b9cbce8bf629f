"""What strangers and neighbours try at the doors of VMs, over real connections."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.console.process import ConsoleProcess
from support.console.pull_client import PullClient
from support.console.records import FakeVm
from support.eventually import eventually

FLOOD = 400


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console that serves the channel, and admits people only through a proxy elsewhere."""
    login = {"LOGIN__MODE": "proxy", "LOGIN__PROXIES": '["192.0.2.1"]', "LOG__LEVEL": "debug"}
    directory = tmp_path_factory.mktemp("console")
    with ConsoleProcess(directory, PULL="true", **login) as running:
        yield running


@pytest.fixture
def client(console: ConsoleProcess) -> Iterator[PullClient]:
    """The client with which VMs poll."""
    with PullClient(console.url, console.key_file) as made:
        yield made


def status(console: ConsoleProcess, path: str, *headers: str) -> int:
    """Return the status of a path exactly as it is written."""
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *headers, "", ""]
    with socket.create_connection(("127.0.0.1", console.port), 20) as connection:
        connection.sendall("\r\n".join(lines).encode())
        return int(connection.recv(100).split()[1])


@pytest.mark.parametrize(
    "path",
    [
        "/pull/../api/v1/overview",
        "/pull/%2e%2e/api/v1/overview",
        "/pull/..%2fapi/v1/overview",
        "/pull/v1/commands/../../../api/v1/audit",
        "/ingest/../api/v1/enrolments",
        "/pull//v1/commands?vm=vm-1&wait=0",
        "/pull/v1/commands%00?vm=vm-1&wait=0",
        "/pull/v1/commands/receipts",
        "/PULL/v1/commands?vm=vm-1&wait=0",
    ],
)
def test_no_path_leads_from_the_vms_doors_to_others(
    console: ConsoleProcess, client: PullClient, path: str
) -> None:
    """From the paths of VMs, which need no login, no other path is reached, even with a VM's valid
    token.
    """
    own = f"Authorization: Bearer {client.token('vm-1')}"
    for headers in ((), (own,)):
        assert status(console, path, *headers) in {400, 401, 404, 405}


def test_a_vms_token_opens_nothing_else(console: ConsoleProcess, client: PullClient) -> None:
    """A VM's token is not accepted by pages or the API."""
    own = f"Authorization: Bearer {client.token('vm-1')}"
    for path in ("/", "/api/v1/overview", "/api/v1/audit", "/api/v1/vms/vm-1"):
        assert status(console, path, own) == 401


@pytest.mark.parametrize(
    "header",
    [
        "X-Forwarded-User: root",
        "X-Original-URL: /api/v1/overview",
        "X-HTTP-Method-Override: POST",
        "Forwarded: for=192.0.2.1",
        "X-VM: vm-1",
        "Cookie: token=x",
    ],
)
def test_no_header_stands_in_for_the_token(console: ConsoleProcess, header: str) -> None:
    """Only the header Authorization is read for the token."""
    assert status(console, "/pull/v1/commands?vm=vm-1&wait=0", header) == 401


def test_a_flood_of_wrong_tokens_changes_nothing(
    console: ConsoleProcess, client: PullClient
) -> None:
    """During a flood of wrong tokens a held poll stays held and people are answered, and no wrong
    token leaves a row or a log line.
    """
    before = console.metric("seb_console_polls_refused_total")
    held = client.asking("vm-held", wait=60)
    eventually(lambda: console.metric("seb_console_polls_held") == 1, what="the poll")
    with ThreadPoolExecutor(4) as threads:
        wrong = [
            threads.submit(client.ask, f"vm-{number}", token="wrong-token-of-a-flood")
            for number in range(FLOOD)
        ]
        assert console.http.get(f"{console.url}/healthz", timeout=10).status_code == 200
        assert {each.result(60).status_code for each in wrong} == {401}
    assert console.metric("seb_console_polls_refused_total") - before == FLOOD
    assert console.metric("seb_console_polls_held") == 1
    assert not held.done()
    assert "wrong-token" not in console.log


def test_secrets_of_vms_are_never_logged(console: ConsoleProcess, client: PullClient) -> None:
    """At the level debug the log has no token, valid or wrong, and no webhook secret."""
    vm = FakeVm(name="quiet")
    assert console.post(vm.event("E-QUIET")).status_code == 204
    assert client.ask(vm.vm_id, wait=0).status_code == 204
    assert client.ask("another-vm", wait=0, token=client.token(vm.vm_id)).status_code == 401
    assert client.receipt(vm.receipt("E-QUIET", "accepted")).status_code == 204
    assert client.token(vm.vm_id) not in console.log
    assert "whsec_" not in console.log
