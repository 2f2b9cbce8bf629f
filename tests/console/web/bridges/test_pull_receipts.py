"""Receipts that come over the HTTPS command channel of a real console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.console.pull_client import PullClient, client_of
from support.console.records import FakeVm
from support.console.stage import ConsoleStage
from support.eventually import eventually

LARGEST = 256 * 1024


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleStage]:
    """A console that serves the channel."""
    with ConsoleStage(tmp_path_factory.mktemp("console"), PULL="true") as made:
        yield made


@pytest.fixture
def client(stage: ConsoleStage) -> Iterator[PullClient]:
    """The client with which VMs send receipts."""
    with client_of(stage) as made:
        yield made


def states(stage: ConsoleStage, event_id: str) -> list[str]:
    """Return the states of the receipts that the API shows for an event."""
    shown = stage.http.get(f"{stage.url}/api/v1/events/{event_id}", timeout=10).json()
    return [item["state"] for item in shown["timeline"] if item["kind"] == "receipt"]


def test_a_receipt_stands_in_the_events_timeline(stage: ConsoleStage, client: PullClient) -> None:
    """A receipt is answered 204 once it is committed, and is in the event's timeline; a second copy
    changes nothing.
    """
    vm = FakeVm(name="answers", site="paris")
    stage.put(vm.event("E-ANSWERED", now=stage.now))
    receipt = vm.receipt("E-ANSWERED", "posted")
    assert [client.receipt(receipt).status_code for _ in range(2)] == [204, 204]
    eventually(lambda: states(stage, "E-ANSWERED") == ["posted"], what="the receipt")
    assert (
        stage.http.get(f"{stage.url}/api/v1/vms/{vm.vm_id}", timeout=10).json()["site"] == "paris"
    )


def test_a_vm_answers_for_itself_only(stage: ConsoleStage, client: PullClient) -> None:
    """A receipt of one VM with the token of another is answered 401, in the words for a wrong
    token.
    """
    victim, forger = FakeVm(name="victim"), FakeVm(name="forger")
    stage.put(victim.event("E-FORGED", now=stage.now))
    forged = victim.receipt("E-FORGED", "confirmed")
    answers = [
        client.post(forged.body, token=token)
        for token in (client.token(forger.vm_id), "x", "", None)
    ]
    assert {(answer.status_code, answer.content) for answer in answers} == {
        (401, answers[0].content)
    }
    assert states(stage, "E-FORGED") == []


def test_receipts_have_the_bound_of_their_vm(tmp_path: Path) -> None:
    """Receipts above the VM's limit are answered 429 with the seconds after which the same one is
    accepted; another VM's are accepted at once.
    """
    with (
        ConsoleStage(tmp_path, PULL="true", INTAKE__RECORDS="1") as console,
        client_of(console) as client,
    ):
        vm, other = FakeVm(name="talks"), FakeVm(name="other")
        answers = [client.receipt(vm.receipt("E", "failed", jti=f"{n}")) for n in range(11)]
        assert [each.status_code for each in answers] == [204] * 10 + [429]
        assert int(answers[-1].headers["Retry-After"]) >= 1
        assert client.receipt(other.receipt("E", "failed")).status_code == 204


def test_only_receipts_are_taken(client: PullClient) -> None:
    """Any other record of the VM is answered 400, because the channel is no source of records."""
    assert client.receipt(FakeVm(name="talks").event("E-TALKED")).status_code == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{}", 400),
        (b"\xff", 400),
        (b"[" * 100_000, 400),
        (b" " * LARGEST, 400),
        (b" " * (LARGEST + 1), 413),
    ],
)
def test_what_is_not_a_record_is_refused(client: PullClient, body: bytes, status: int) -> None:
    """A body that is not JSON, not a record, or too large is refused."""
    assert client.post(body, token=client.token("vm-a")).status_code == status
