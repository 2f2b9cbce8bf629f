"""Records over signed webhooks, through a real console."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.console.stage import ConsoleStage
from support.eventually import eventually

from console.ingest.vm_secrets import read_key, webhook_secret
from sinks.kinds.webhook.signature import SharedSecret, signature_headers


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """One console for the tests that do not restart it."""
    with ConsoleProcess(tmp_path_factory.mktemp("console")) as running:
        yield running


def test_a_signed_record_is_on_the_page_and_in_the_api(console: ConsoleProcess) -> None:
    """A record that was answered 204 is shown as an event, with its VM."""
    vm = FakeVm(name="shown")
    assert console.post(vm.event("E-SHOWN")).status_code == 204
    eventually(lambda: "E-SHOWN" in console.events(), what="the event")
    event = console.events()["E-SHOWN"]
    assert event["state"] == "scheduled"
    assert event["resources"] == [{"name": "shown", "vmId": vm.vm_id, "contact": "heard"}]
    assert console.vms()["shown"]["condition"] == "scheduled"
    assert "shown" in console.http.get(console.url, timeout=10).text


def test_a_second_copy_is_taken_and_changes_nothing(console: ConsoleProcess) -> None:
    """A record that comes twice is answered 204 twice and counted once."""
    record = FakeVm(name="twice").event("E-TWICE")
    assert [console.post(record).status_code for _ in range(2)] == [204, 204]
    eventually(lambda: "E-TWICE" in console.events(), what="the event")
    assert console.events()["E-TWICE"]["seenBy"] == 1


def test_a_vm_sends_only_its_own_records(console: ConsoleProcess) -> None:
    """A record that is signed with another VM's secret is refused."""
    record, other = FakeVm(name="victim").event("E-FORGED"), FakeVm(name="forger")
    answer = console.post(record, signed_for=other.vm_id)
    assert answer.status_code == 401
    assert "E-FORGED" not in console.events()


@pytest.mark.parametrize(
    ("body", "status"), [(b"{}", 400), (b"\xff", 400), (b"[" * 100_000, 400), (b" " * 262_145, 413)]
)
def test_an_invalid_record_is_refused(console: ConsoleProcess, body: bytes, status: int) -> None:
    """Bytes that are not a record, or too many, are refused with the reason."""
    assert console.post_body(body, vm_id="anybody").status_code == status


def test_a_timestamp_of_yesterday_is_refused_in_words(console: ConsoleProcess) -> None:
    """The refusal of a signature from yesterday says that the VM's clock is wrong."""
    answer = console.post(FakeVm(name="yesterday").event("E-OLD"), skew=-86_400)
    assert answer.status_code == 401
    assert "clock" in answer.text


def test_a_restart_keeps_everything(tmp_path: Path) -> None:
    """After kill -9 the VMs and open events are the same, and a VM that was heard is heard."""
    console = ConsoleProcess(tmp_path)
    with console:
        assert console.post(FakeVm(name="kept").event("E-KEPT")).status_code == 204
        console.kill()
        console.start()
        assert list(console.events()) == ["E-KEPT"]
        assert console.contacts() == {"kept": "heard"}
        assert console.stop() == 0


def test_a_second_console_on_the_same_file_is_refused(
    console: ConsoleProcess, tmp_path: Path
) -> None:
    """A second console on the same SQLite file ends with 78 and a remedy."""
    done = console.run("run", SEB_CONSOLE_LISTEN="127.0.0.1:0")
    assert done.returncode == 78
    assert "PostgreSQL" in done.stderr


def test_enroll_prints_what_a_bridge_needs(console: ConsoleProcess) -> None:
    """The printed lines are settings of the bridge, with the secret of this VM."""
    done = console.run("enroll", "some-vm")
    assert done.returncode == 0, done.stderr
    lines = dict(line.split("=", maxsplit=1) for line in done.stdout.splitlines())
    assert list(lines) == [
        "SEB_SINK__CONSOLE__KIND",
        "SEB_SINK__CONSOLE__URL",
        "SEB_SINK__CONSOLE__SECRET",
        "SEB_COMMANDS__PULL_URL",
        "SEB_COMMANDS__PULL_TOKEN",
    ]
    assert lines["SEB_SINK__CONSOLE__URL"] == f"{console.url}/ingest/v1/records"


def test_a_record_that_cannot_be_stored_is_not_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the database cannot be written, the answer is 503 with the time of the next try."""
    vm = FakeVm()
    with ConsoleStage(tmp_path) as stage:
        body = vm.event("E", now=stage.now).body
        secret = SharedSecret(webhook_secret(read_key(tmp_path / "enroll.key"), vm.vm_id, 1))
        at = int(stage.now.timestamp())
        headers = signature_headers([secret], message_id="r", timestamp=at, body=body)
        with stage.console.database.writing.begin() as connection, monkeypatch.context() as short:
            short.setattr("console.web.bridges.records._COMMIT_SECONDS", 0.3)
            connection.execute(text("SELECT 1"))
            answer = stage.http.post(f"{stage.url}/ingest/v1/records", data=body, headers=headers)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        answer = stage.http.post(f"{stage.url}/ingest/v1/records", data=body, headers=headers)
        assert answer.status_code == 204


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"sequence": "0" + "9" * 19}, "sequence"),
        ({"sequence": f"{10**15 + 1:020d}"}, "sequence"),
        ({"time": "2099-01-01T00:00:00.000Z"}, "ten years"),
        ({"observation": {"pauseSeconds": 1e308}}, "out of range"),
        ({"observation": {"downtimeSeconds": -5.0}}, "duration"),
        ({"observation": {"noticeSeconds": 1e9}}, "duration"),
    ],
)
def test_a_number_that_no_vm_can_mean_is_refused_and_shown(
    console: ConsoleProcess, body: dict[str, Any], words: str
) -> None:
    """An impossible number is answered 400, the quarantine names its VM, and every page can still
    be drawn.
    """
    vm = FakeVm(name="impossible")
    record = json.loads(vm.event("E-IMPOSSIBLE", observation=body.get("observation")).body)
    record |= {name: value for name, value in body.items() if name != "observation"}
    answer = console.post_body(json.dumps(record).encode(), vm_id=vm.vm_id)
    assert answer.status_code == 400
    assert words in answer.text

    def row() -> object:
        items = console.get("quarantine")["items"]
        return next((each for each in items if words in each["message"]), None)

    eventually(lambda: vm.vm_id in str(row()), what=f"the row of {answer.text}")
    assert "E-IMPOSSIBLE" not in console.events()
    assert console.http.get(console.url, timeout=10).status_code == 200


def test_nothing_is_read_of_what_is_not_signed(console: ConsoleProcess) -> None:
    """Any body without a valid signature is answered 401 and leaves no row."""
    body = b'{"partitionkey":"somebody","data":' + b"[" * 50_000
    assert console.post_body(body, vm_id="somebody-else").status_code == 401
    assert "not_json" not in {each["reason"] for each in console.get("quarantine")["items"]}
