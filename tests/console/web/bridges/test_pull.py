"""The HTTPS command channel of a real console, with commands that a test puts there."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.console.pull_client import PATH, FakeDecisions, PullClient, client_of
from support.console.records import FakeVm
from support.console.stage import ConsoleStage
from support.eventually import eventually

from console.web.bridges import held_polls
from console.web.bridges.held_polls import HeldPolls


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleStage]:
    """A console that serves the command channel."""
    with ConsoleStage(tmp_path_factory.mktemp("console"), PULL="true") as made:
        made.state.bridges.decisions = FakeDecisions()
        yield made


@pytest.fixture
def decisions(stage: ConsoleStage) -> FakeDecisions:
    """The console's commands, for this test alone."""
    stage.state.bridges.decisions = made = FakeDecisions()
    return made


@pytest.fixture
def client(stage: ConsoleStage) -> Iterator[PullClient]:
    """A client that polls as the VMs do."""
    with client_of(stage) as made:
        yield made


def queue_of(stage: ConsoleStage) -> HeldPolls:
    """The held polls of a console."""
    return stage.state.bridges.held_polls


def test_without_a_command_the_answer_is_204(client: PullClient) -> None:
    """A poll that does not wait is answered 204 at once."""
    answer = client.ask("vm-idle", wait=0)
    assert (answer.status_code, answer.content) == (204, b"")


def test_a_command_wakes_the_held_poll_of_its_vm(
    stage: ConsoleStage, client: PullClient, decisions: FakeDecisions
) -> None:
    """A command answers the held poll of its VM with a JSON list of tokens, and no other poll."""
    mine, other = client.asking("vm-1"), client.asking("vm-2", wait=5)
    eventually(lambda: len(queue_of(stage)) == 2, what="two held polls")
    decisions.tokens["vm-1"] = [b"a.b.c", b"d.e.f"]
    queue_of(stage).offer("vm-1", "jti-1")
    assert mine.result(10).json() == ["a.b.c", "d.e.f"]
    assert decisions.fetch.wait(10)
    assert decisions.fetches == ["vm-1"]
    assert other.result(10).status_code == 204


def test_a_command_that_was_made_before_is_given_at_once(
    stage: ConsoleStage, client: PullClient, decisions: FakeDecisions
) -> None:
    """A poll after a command was made gets the command at once."""
    decisions.tokens["vm-late"] = [b"a.b.c"]
    queue_of(stage).offer("vm-late", "jti-1")
    assert client.ask("vm-late").json() == ["a.b.c"]


def test_a_fetched_command_is_given_again_until_it_is_answered(
    stage: ConsoleStage,
    client: PullClient,
    decisions: FakeDecisions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A command is sent again until its receipt comes, because an answer may be lost."""
    monkeypatch.setattr(held_polls, "RESEND_SECONDS", 0.3)
    decisions.tokens["vm-again"] = [b"a.b.c"]
    queue_of(stage).offer("vm-again", "jti-1")
    assert client.ask("vm-again").json() == ["a.b.c"]
    assert client.ask("vm-again", wait=0).status_code == 204
    assert client.ask("vm-again").json() == ["a.b.c"]
    decisions.tokens.clear()
    queue_of(stage).offer("vm-again", "jti-1")
    assert client.ask("vm-again", wait=1).status_code == 204
    assert queue_of(stage).due("vm-again") is None


def test_the_newest_poll_of_a_vm_wins(
    stage: ConsoleStage, client: PullClient, decisions: FakeDecisions
) -> None:
    """A second poll of a VM ends its older one with an empty answer."""
    older = client.asking("vm-twice")
    eventually(lambda: len(queue_of(stage)) == 1, what="the first poll")
    newer = client.asking("vm-twice")
    assert older.result(10).status_code == 204
    decisions.tokens["vm-twice"] = [b"a.b.c"]
    queue_of(stage).offer("vm-twice", "jti-1")
    assert newer.result(10).json() == ["a.b.c"]
    assert len(queue_of(stage)) == 0


def test_a_client_that_goes_away_frees_its_place(stage: ConsoleStage, client: PullClient) -> None:
    """A held poll ends with its connection."""
    address = urlsplit(stage.url)
    connection = HTTPConnection(str(address.hostname), address.port, timeout=10)
    authorization = {"Authorization": f"Bearer {client.token('vm-gone')}"}
    connection.request("GET", f"{PATH}?vm=vm-gone&wait=60", headers=authorization)
    eventually(lambda: len(queue_of(stage)) == 1, what="the poll")
    connection.close()
    eventually(lambda: len(queue_of(stage)) == 0, what="the place")


def test_a_full_console_says_when_to_ask_again(
    stage: ConsoleStage, client: PullClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of held polls is limited, and a VM whose poll is held may poll again."""
    monkeypatch.setattr(queue_of(stage), "most", 1)
    held = client.asking("vm-held")
    eventually(lambda: len(queue_of(stage)) == 1, what="the poll")
    refused = client.ask("vm-too-many")
    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) > 0
    assert client.ask("vm-held", wait=1).status_code == 204
    assert held.result(10).status_code == 204


def test_a_console_that_ends_answers_every_poll_at_once(tmp_path: Path) -> None:
    """The end of the console answers every held poll."""
    with ConsoleStage(tmp_path, PULL="true") as stage, client_of(stage) as client:
        polls = [client.asking(f"vm-{number}", wait=60) for number in range(5)]
        eventually(lambda: len(queue_of(stage)) == 5, what="the polls")
        begun = time.monotonic()
        stage.stop()
        assert [poll.result(10).status_code for poll in polls] == [204] * 5
        assert time.monotonic() - begun < 20


def test_without_the_setting_there_is_no_channel(tmp_path: Path) -> None:
    """Without SEB_CONSOLE_PULL there is no command channel."""
    with ConsoleStage(tmp_path) as stage, client_of(stage) as client:
        assert client.ask("vm-1", wait=0).status_code == 404
        assert client.receipt(FakeVm().receipt("E", "accepted")).status_code == 404


@pytest.mark.parametrize("token", [None, "", "x", "é", "a b"])
def test_a_wrong_token_is_401(client: PullClient, token: str | None) -> None:
    """Any wrong token gets the same 401."""
    answer = client.get({"vm": "vm-1", "wait": "0"}, token=token)
    assert answer.status_code == 401
    assert answer.json() == {
        "error": "this is not the bearer token of that VM; see `seb console enroll`"
    }
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_a_token_opens_its_own_vms_queue_only(
    stage: ConsoleStage, client: PullClient, decisions: FakeDecisions
) -> None:
    """A VM's token is answered with the same 401 for another VM, for an unknown one, and for tricks
    with the address.
    """
    decisions.tokens["vm-b"] = [b"secret.of.b"]
    queue_of(stage).offer("vm-b", "jti-b")
    names = [
        "vm-b",
        "no-such-vm",
        "VM-A",
        " vm-a",
        "vm-a ",
        "vm-a\0",
        "../vm-a",
        "vm-a/../vm-b",
        "*",
    ]
    answers = [client.ask(name, wait=0, token=client.token("vm-a")) for name in names]
    assert {(answer.status_code, answer.content) for answer in answers} == {
        (401, answers[0].content)
    }
    assert decisions.fetches == []


@pytest.mark.parametrize(
    "query",
    [
        "",
        "vm=vm-a&vm=vm-b&wait=0",
        "vm=vm-b&vm=vm-a&wait=0",
        "vm=vm-a&wait=0&wait=60",
        "vm=vm-a&wait=-1",
        "vm=vm-a&wait=1e9",
        "vm=vm-a&wait=",
        "vm=vm-a&wait=٣",
        "&".join(["vm=vm-a"] * 100),
    ],
)
def test_an_ambiguous_poll_is_400(client: PullClient, query: str) -> None:
    """A poll with a repeated or unclear parameter is answered 400."""
    assert client.get(query, token=client.token("vm-a")).status_code == 400


def test_two_tokens_in_one_request_are_none(stage: ConsoleStage, client: PullClient) -> None:
    """A request with two tokens is refused, because a proxy and the console might read different
    ones.
    """
    request = (
        f"GET {PATH}?vm=vm-a&wait=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {client.token('vm-b')}\r\n"
        f"Authorization: Bearer {client.token('vm-a')}\r\nConnection: close\r\n\r\n"
    )
    address = urlsplit(stage.url)
    with socket.create_connection((address.hostname, address.port), 10) as connection:
        connection.sendall(request.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE"])
def test_only_get_takes_commands(
    stage: ConsoleStage, client: PullClient, decisions: FakeDecisions, method: str
) -> None:
    """HEAD takes no command."""
    decisions.tokens["vm-head"] = [b"a.b.c"]
    queue_of(stage).offer("vm-head", f"jti-{method}")
    authorization = {"Authorization": f"Bearer {client.token('vm-head')}"}
    answer = stage.http.request(
        method, f"{stage.url}{PATH}?vm=vm-head&wait=0", headers=authorization, timeout=10
    )
    assert answer.status_code == 405
    assert decisions.fetches == []


def test_a_wait_beyond_the_longest_is_cut(
    stage: ConsoleStage, client: PullClient, decisions: FakeDecisions
) -> None:
    """A longer wait than the longest is shortened, and not refused."""
    poll = client.asking("vm-day", wait=86_400)
    eventually(lambda: len(queue_of(stage)) == 1, what="the poll")
    decisions.tokens["vm-day"] = [b"a.b.c"]
    queue_of(stage).offer("vm-day", "jti-1")
    assert poll.result(10).json() == ["a.b.c"]


def test_a_vm_that_polls_is_known_to_poll(stage: ConsoleStage, client: PullClient) -> None:
    """A poll is in the VM's row within seconds; a wrong token leaves no trace."""
    polls, forged = FakeVm(name="polls"), FakeVm(name="forged")
    stage.put(polls.heartbeat(now=stage.now), forged.heartbeat(now=stage.now))
    client.ask(polls.vm_id, wait=0)
    client.ask(forged.vm_id, wait=0, token="x")

    def polled_at(vm: FakeVm) -> float | None:
        with stage.state.snapshots.open() as snapshot:
            heard = snapshot.vms.find_vm(vm.vm_id)
        return None if heard is None else heard.vm.pulled_at

    eventually(lambda: polled_at(polls) == stage.now.timestamp(), what="the row")
    assert polled_at(forged) is None


def polling(client: PullClient, vm_id: str) -> bytes:
    """Return the bytes of a poll's request."""
    return (
        f"GET {PATH}?vm={vm_id}&wait=60 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {client.token(vm_id)}\r\n\r\n"
    ).encode()


def test_requests_that_wait_behind_a_held_poll_are_bounded(
    stage: ConsoleStage, client: PullClient
) -> None:
    """A client that sends many requests behind a held poll is disconnected, and its poll ends."""
    address = urlsplit(stage.url)
    with socket.create_connection((address.hostname, address.port), 20) as connection:
        connection.sendall(polling(client, "vm-many") * 50)
        with suppress(ConnectionError):
            assert connection.recv(100) == b""
    eventually(lambda: len(queue_of(stage)) == 0, what="the place")


def test_a_fleet_whose_connections_break_leaves_nothing(
    stage: ConsoleStage, client: PullClient
) -> None:
    """After a fleet's connections have broken, every place is free and the console answers."""
    address = urlsplit(stage.url)
    with ExitStack() as stack:
        for number in range(200):
            connection = socket.create_connection((address.hostname, address.port), 20)
            stack.enter_context(connection)
            reset = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            connection.sendall(polling(client, f"vm-{number}"))
        eventually(lambda: len(queue_of(stage)) == 200, what="the polls")
    eventually(lambda: len(queue_of(stage)) == 0, what="the places")
    assert client.ask("vm-1", wait=0).status_code == 204


def test_until_it_has_read_its_database_nobody_is_let_in(
    stage: ConsoleStage, client: PullClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A console that has just started refuses polls until it knows which secrets were revoked."""
    monkeypatch.setattr(stage.state.bridges, "is_ready", lambda: False)
    record = FakeVm(name="early").receipt("E", "accepted")
    answers = [
        client.ask(record.partition_key, wait=0),
        client.receipt(record),
        stage.http.post(f"{stage.url}/ingest/v1/records", data=record.body, timeout=10),
    ]
    assert [answer.status_code for answer in answers] == [503] * 3
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers)
