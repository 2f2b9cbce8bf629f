"""Enrolment with generations of secrets: by the command, over HTTPS, and in a running console."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import requests
import yaml
from support.console.process import ConsoleProcess
from support.console.pull_client import PullClient
from support.console.records import FakeVm
from support.eventually import eventually
from support.process.bridge import run_seb

from console.audit.audit_log import read_rows
from console.db.access.enrolment_rows import generations_since
from console.db.connection.opening import Database
from console.errors import RefusedError
from console.ingest.vm_secrets import (
    EVERY_VM,
    Enrolments,
    pull_token,
    read_key,
    secret_text,
    webhook_secret,
)
from console.vms import enrolment

KEY = bytes(range(32))
AT = 1_800_000_000.0
PUBLIC = (
    *("--set", "SEB_CONSOLE_PUBLIC_URL=https://console.example"),
    *("--set", "SEB_CONSOLE_LOGIN__MODE=proxy"),
    *("--set", 'SEB_CONSOLE_LOGIN__PROXIES=["127.0.0.1"]'),
)
"""Where others reach the console, with the login that it needs then."""


def generations(database: Database) -> dict[str, int]:
    """Return the rows of generations, as a console reads them."""
    with database.reading.begin() as connection:
        return generations_since(connection, 0)


def test_the_first_generation_gives_the_secrets_of_today() -> None:
    """VMs that were enrolled before there were generations stay enrolled."""
    assert pull_token(KEY, "vm-1") == "kuwM6LSzxkeBTS46Zi5CGaI4Uw0C49fhHJKMoriKBYs"
    assert (
        secret_text(webhook_secret(KEY, "vm-1"))
        == "whsec_TYRXrDZado/4M/COshrQFQDqVy5tKxD4qB5dUJty0LQ="
    )


def test_a_vm_keeps_its_secrets_until_they_are_revoked(database: Database) -> None:
    """Enrolling a VM again gives the same secrets; after a revocation it gives those of the next
    generation.
    """
    assert enrolment.enroll(database, ["vm-1", "vm-2"], actor="mia", now=AT) == {
        "vm-1": 1,
        "vm-2": 1,
    }
    enrolment.revoke(database, ["vm-1"], actor="mia", now=AT)
    assert generations(database) == {"vm-1": 2, "vm-2": 1}
    assert enrolment.enroll(database, ["vm-1", "vm-2"], actor="mia", now=AT) == {
        "vm-1": 2,
        "vm-2": 1,
    }


def test_a_vm_that_was_never_enrolled_can_be_revoked(database: Database) -> None:
    """The secrets of a VM without a row can be revoked, because its first generation is valid
    without one.
    """
    enrolment.revoke(database, ["vm-1"], actor="mia", now=AT)
    assert generations(database) == {"vm-1": 2}


def test_revoking_all_ends_every_generation(database: Database) -> None:
    """Revoking all secrets ends those of known VMs, in whatever generation, and of unknown VMs."""
    for _ in range(3):
        enrolment.revoke(database, ["vm-1"], actor="mia", now=AT)
    enrolment.revoke_all(database, actor="mia", now=AT)
    enrolled = enrolment.enroll(database, ["vm-1", "vm-2"], actor="mia", now=AT)
    assert enrolled == {"vm-1": 5, "vm-2": 5}
    enrolment.revoke_all(database, actor="mia", now=AT)
    assert enrolment.enroll(database, ["vm-2"], actor="mia", now=AT) == {"vm-2": 6}


def test_each_is_a_row_of_the_audit_without_a_secret(database: Database) -> None:
    """Each enrolment and revocation is a row with the person, the VM and the generation, without a
    secret.
    """
    enrolment.enroll(database, ["vm-1"], actor="mia", now=AT)
    enrolment.revoke(database, ["vm-1"], actor="joe", now=AT)
    enrolment.revoke_all(database, actor="joe", now=AT)
    rows = [json.loads(row.body) for row in read_rows(database.reading)]
    told = [
        {name: row.get(name) for name in ("actor", "action", "vmId", "generation")} for row in rows
    ]
    assert told == [
        {"actor": "mia", "action": "vm_enrolled", "vmId": "vm-1", "generation": 1},
        {"actor": "joe", "action": "vm_revoked", "vmId": "vm-1", "generation": 1},
        {"actor": "joe", "action": "all_vms_revoked", "vmId": None, "generation": 2},
    ]


def test_an_invalid_vm_id_is_refused(database: Database) -> None:
    """A call with an invalid vmId changes nothing."""
    for vm_id in ("", "*", "a b", "a\nb", "a/b", "a+b", "a#b", "\u202evm", "x" * 129, "\0"):
        for change in (enrolment.enroll, enrolment.revoke):
            with pytest.raises(RefusedError, match="not a vmId"):
                change(database, ["vm-1", vm_id], actor="mia", now=AT)
    assert generations(database) == {}


def test_many_vms_are_enrolled_in_portions(database: Database) -> None:
    """The list of a whole fleet is enrolled, each VM once."""
    vm_ids = [f"vm-{number}" for number in range(1200)]
    found = enrolment.enroll(database, [*vm_ids, *vm_ids], actor="mia", now=AT)
    assert list(found) == vm_ids
    assert len(generations(database)) == 1200


def test_an_old_generation_opens_nothing() -> None:
    """After a revocation, of one VM or of all, old secrets are refused."""
    enrolments = Enrolments(KEY)
    assert enrolments.opens("vm-1", pull_token(KEY, "vm-1"))
    assert enrolments.put({"vm-1": 2, "vm-2": 1}) == {"vm-1"}
    assert not enrolments.opens("vm-1", pull_token(KEY, "vm-1"))
    assert enrolments.opens("vm-1", pull_token(KEY, "vm-1", 2))
    assert enrolments.opens("vm-2", pull_token(KEY, "vm-2"))
    assert EVERY_VM in enrolments.put({EVERY_VM: 3})
    assert not enrolments.opens("vm-3", pull_token(KEY, "vm-3"))
    assert enrolments.webhook_secret("vm-1") == webhook_secret(KEY, "vm-1", 3)
    assert not Enrolments(None).opens("vm-1", "")


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console that serves the command channel."""
    with ConsoleProcess(tmp_path_factory.mktemp("console"), PULL="true") as running:
        yield running


def enroll(
    console: ConsoleProcess, *words: str, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `seb console enroll` beside it."""
    if not given:
        return console.run("enroll", *words)
    return subprocess.run(
        console.command("enroll", *words),
        env=console.environ,
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def lines_of(text: str) -> dict[str, str]:
    """Return the settings in the lines of a seb.env."""
    return dict(line.split("=", maxsplit=1) for line in text.splitlines())


def test_a_revoked_vm_is_refused_within_a_second(console: ConsoleProcess) -> None:
    """A revoked VM's webhooks and polls, also a held one, are refused within a second; its new
    secrets are accepted.
    """
    vm = FakeVm(name="rotated")
    with PullClient(console.url, console.key_file) as client:
        assert console.post(vm.heartbeat()).status_code == 204
        held = client.asking(vm.vm_id)
        eventually(lambda: console.metric("seb_console_polls_held") == 1, what="the poll")
        assert enroll(console, "--revoke", vm.vm_id).returncode == 0
        assert held.result(1.5).status_code == 401
        assert client.ask(vm.vm_id, wait=0).status_code == 401
        assert console.post(vm.heartbeat()).status_code == 401
        lines = lines_of(enroll(console, vm.vm_id).stdout)
        token = lines["SEB_COMMANDS__PULL_TOKEN"]
        assert token == client.token(vm.vm_id, generation=2)
        assert client.ask(vm.vm_id, wait=0, token=token).status_code == 204
        assert console.post(vm.heartbeat(), generation=2).status_code == 204


def test_a_list_is_enrolled_in_blocks_and_as_json(console: ConsoleProcess) -> None:
    """A list is read from a file or standard input; comments and empty lines are skipped."""
    given = "# web tier\nvm-a\n\nvm-b\n"
    blocks = enroll(console, "--file", "-", given=given).stdout.split("\n\n")
    assert [block.splitlines()[0] for block in blocks] == ["# VM vm-a", "# VM vm-b"]
    items = json.loads(enroll(console, "--file", "-", "--json", given=given).stdout)["items"]
    assert [(item["vmId"], item["generation"]) for item in items] == [("vm-a", 1), ("vm-b", 1)]
    key = read_key(console.key_file)
    assert items[1]["settings"]["SEB_COMMANDS__PULL_TOKEN"] == pull_token(key, "vm-b")


def test_a_fleet_gets_a_file_for_each_vm(console: ConsoleProcess, tmp_path: Path) -> None:
    """Each VM gets a file with the printed lines, named after its line or its vmId, which only the
    owner can read.
    """
    out = tmp_path / "enrolled"
    given = "# the fleet\nvm-a web-01\nvm-b\n"
    assert enroll(console, "--file", "-", "--out", str(out), given=given).returncode == 0
    assert sorted(path.name for path in out.iterdir()) == ["vm-b.env", "web-01.env"]
    if os.name == "posix":
        assert {path.stat().st_mode & 0o077 for path in out.iterdir()} == {0}
    text = (out / "web-01.env").read_text()
    assert lines_of(text) == lines_of(enroll(console, "vm-a").stdout)


def test_missing_settings_are_named(console: ConsoleProcess) -> None:
    """Standard error names a missing command channel, or the missing key without which commands are
    refused.
    """
    served = enroll(console, "vm-a")
    assert "SEB_APPROVAL__TRUST" in served.stderr
    assert "seb console trust" in served.stderr
    without = console.run("enroll", "vm-a", SEB_CONSOLE_PULL="false")
    assert "leave out the lines that begin with SEB_COMMANDS__" in without.stderr
    assert "SEB_APPROVAL__TRUST" not in without.stderr
    assert without.stdout == served.stdout


def test_the_form_that_ansible_takes(console: ConsoleProcess, tmp_path: Path) -> None:
    """The format `ansible` is a file of host_vars whose variable has the lines."""
    words = ("--file", "-", "--out", str(tmp_path), "--format", "ansible")
    assert enroll(console, *words, given="vm-a web-01\n").returncode == 0
    read = yaml.safe_load((tmp_path / "web-01.yml").read_text())
    assert lines_of(read["seb_enrolment"]) == lines_of(enroll(console, "vm-a").stdout)


def test_the_form_that_windows_takes(console: ConsoleProcess, tmp_path: Path) -> None:
    """The format for Windows is tables of seb.toml with the same names and values."""
    path = tmp_path / "seb.toml"
    path.write_text(enroll(console, "vm-a", "--format", "windows").stdout)
    tables = tomllib.loads(path.read_text())
    flat = {
        f"SEB_{'__'.join(names)}".upper(): value
        for names, value in (
            *((("sink", "console", key), text) for key, text in tables["sink"]["console"].items()),
            *((("commands", key), text) for key, text in tables["commands"].items()),
        )
    }
    assert flat == lines_of(enroll(console, "vm-a").stdout)
    good = enroll(console, "vm-a", "--format", "windows", *PUBLIC)
    path.write_text(good.stdout)
    result = run_seb("config", "show", home=tmp_path, env={"SEB_CONFIG": str(path)})
    assert result.code == 0, result.err


@pytest.mark.parametrize("given", ["vm-a ../x\n", "vm-a web\nvm-b web\n"])
def test_a_name_that_is_no_file_is_refused(
    console: ConsoleProcess, tmp_path: Path, given: str
) -> None:
    """A path as a name, or one name for two VMs, is refused before any file is written."""
    done = enroll(console, "--file", "-", "--out", str(tmp_path / "out"), given=given)
    assert done.returncode == 2
    assert not (tmp_path / "out").exists()


def test_lines_that_would_not_work_have_a_note(console: ConsoleProcess) -> None:
    """A note about settings that would not work is on standard error, so that standard output has
    only settings.
    """
    notes = enroll(console, "vm-a").stderr
    assert "SEB_CONSOLE_PUBLIC_URL" in notes
    assert "SEB_COMMANDS__" not in notes
    overrides = ("--set", "SEB_CONSOLE_PULL=false")
    done = enroll(console, "vm-a", *overrides, *PUBLIC)
    assert "SEB_COMMANDS__" in done.stderr
    assert "SEB_CONSOLE_PUBLIC_URL" not in done.stderr
    url = lines_of(done.stdout)["SEB_COMMANDS__PULL_URL"]
    assert url == "https://console.example/pull/v1/commands"


@pytest.mark.parametrize("words", [("--revoke",), ("a b",), ("--revoke-all", "vm-a")])
def test_a_wrong_call_is_a_usage_error(console: ConsoleProcess, words: Sequence[str]) -> None:
    """A usage error ends with exit code 2 and changes nothing."""
    done = enroll(console, *words)
    assert (done.returncode, done.stdout) == (2, "")


def test_enrolment_without_a_console_that_runs(tmp_path: Path) -> None:
    """Without a running console the command makes the database if it is missing, and closes it."""
    console = ConsoleProcess(tmp_path, PULL="true")
    assert enroll(console, "vm-1").returncode == 0
    assert enroll(console, "--revoke-all").returncode == 0
    with console, PullClient(console.url, console.key_file) as client:
        assert client.ask("vm-1", wait=0).status_code == 401
        token = lines_of(enroll(console, "vm-1").stdout)["SEB_COMMANDS__PULL_TOKEN"]
        assert client.ask("vm-1", wait=0, token=token).status_code == 204
        held = client.asking("vm-1", token=token)
        eventually(lambda: console.metric("seb_console_polls_held") == 1, what="the poll")
        assert enroll(console, "--revoke-all").returncode == 0
        assert held.result(5).status_code == 401
        console.kill()
        console.start()
        assert client.ask("vm-1", wait=0, token=token).status_code == 401


def asked_for(console: ConsoleProcess, body: object, token: str | None = None) -> requests.Response:
    """Return the answer that a provisioning tool gets."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    address = f"{console.url}/api/v1/enrolments"
    return console.http.post(address, json=body, headers=headers, timeout=30)


def test_a_provisioning_tool_enrolls_with_an_admins_token(console: ConsoleProcess) -> None:
    """A provisioning tool gets the lines of the command in an answer that is not cached, and the
    audit names its token.
    """
    token = console.token("terraform", role="admin")
    answer = asked_for(console, {"vmIds": ["vm-t"]}, token)
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    (item,) = answer.json()["items"]
    assert item["settings"] == lines_of(enroll(console, "vm-t").stdout)
    rows = [row for row in console.audit("vm_enrolled") if row["vmId"] == "vm-t"]
    assert rows[0]["actor"] == "token:terraform"
    assert item["settings"]["SEB_COMMANDS__PULL_TOKEN"] not in json.dumps(rows)


def test_only_an_admin_of_every_site_enrolls(console: ConsoleProcess) -> None:
    """Another role, or a token of one site, is answered 403; a body that is not a list of vmIds
    422.
    """
    refused = [
        console.token("reads", role="viewer"),
        console.token("approves", role="approver"),
        console.token("of-a-site", "--site", "paris", role="admin"),
    ]
    for token in refused:
        assert asked_for(console, {"vmIds": ["vm-x"]}, token).status_code == 403
    for body in ({}, [], {"vmIds": []}, {"vmIds": "vm-x"}, {"vmIds": [1]}, {"vmIds": ["a b"]}):
        assert asked_for(console, body).status_code == 422
    assert not [row for row in console.audit("vm_enrolled") if row["vmId"] == "vm-x"]


def test_tags_are_given_by_the_command_and_over_https(console: ConsoleProcess) -> None:
    """Tags of an enrolment are in the audit; invalid tags are refused."""
    vm = FakeVm()
    done = enroll(console, "--tag", "service=db", "--tag", "role=", vm.vm_id)
    assert done.returncode == 0, done.stderr
    assert enroll(console, "--tag", "service", vm.vm_id).returncode == 2
    assert console.audit("vm_enrolled")[-1]["tags"] == ["service=db", "role="]
