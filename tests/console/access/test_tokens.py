"""Bearer tokens: made and revoked by the command, and what each may do in a running console."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import pytest
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually

from console.access.people import Person
from console.access.refused_attempts import RefusedAttempt, RefusedAttempts
from console.access.site_access import decides_event, sees_event, sees_vm
from console.access.tokens import Tokens, add_token, end_token, list_tokens
from console.audit.audit_log import all_rows
from console.audit.chain import as_json
from console.db.connection.opening import Database
from console.errors import RefusedError
from console.fleet.values.event import FleetEvent
from console.fleet.values.vm import Vm
from sinks.shared.errors import ConfigurationError

Call = Callable[..., int]


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console of two sites with a VM and an event each; people come through a proxy."""
    settings = {
        "LOGIN__MODE": "proxy",
        "LOGIN__PROXIES": '["127.0.0.1"]',
        "ROLES": '{"admin": ["user:root"]}',
    }
    with ConsoleProcess(tmp_path_factory.mktemp("console"), **settings) as running:
        for site in ("north", "south"):
            vm = FakeVm(name=f"web-{site}", site=site)
            assert running.post(vm.event(f"E-{site}")).status_code == 204
        running.http.headers["Authorization"] = f"Bearer {running.token('tests')}"
        eventually(lambda: len(running.vms()) == 2, what="both VMs")
        yield running


def status(console: ConsoleProcess, token: str, path: str = "/api/v1/vms", **more: str) -> int:
    """Return the status of a GET with only a bearer token."""
    headers = {"Authorization": f"Bearer {token}", **more}
    return console.http.get(console.url + path, headers=headers, timeout=10).status_code


def test_a_token_is_shown_once_and_stored_as_a_hash(console: ConsoleProcess) -> None:
    """Neither the list, the audit, the log nor any file of the console has the token's text."""
    token = console.token("once")
    assert status(console, token) == 200
    listed = json.loads(console.run("token", "list", "--json").stdout)["items"]
    assert {"good"} == {each["state"] for each in listed if each["name"] == "once"}
    written = b"".join(each.read_bytes() for each in console.directory.iterdir() if each.is_file())
    assert token.encode() not in written
    assert sha256(token.encode()).hexdigest().encode() in written
    added = console.audit("token_added")[-1]
    assert (added["name"], added["role"]) == ("once", "viewer")
    assert added["actor"].startswith("local:")


def test_a_token_without_days_is_never_good(console: ConsoleProcess) -> None:
    """A token for zero days is refused at once with 401, which does not say why."""
    assert status(console, console.token("ended", days="0")) == 401


def test_days_that_are_no_number_are_refused(console: ConsoleProcess) -> None:
    """A number of days that is not one ends with exit code 2, and no token is made."""
    done = console.run("token", "add", "nobody", "--role", "viewer", "--days", "nan")
    assert done.returncode == 2
    assert "not a number" in done.stderr


def test_a_token_ends_by_itself(database: Database) -> None:
    """A token is refused from its end on, without a read of the database."""
    now = [100.0]
    tokens = Tokens(database, lambda: now[0])
    text = add_token(database, "ci", role="admin", site="a", days=1, actor="local:me", now=now[0])

    async def look() -> Person | None:
        return await tokens.person(text)

    expected = Person(name="token:ci", roles=frozenset({"admin"}), site="a", is_token=True)
    assert asyncio.run(look()) == expected
    now[0] += 86_400
    assert asyncio.run(look()) is None


def test_a_revoked_token_is_refused_within_a_second(console: ConsoleProcess) -> None:
    """The command revokes a token beside a running console; a second revocation changes nothing."""
    token = console.token("leaver")
    assert status(console, token) == 200
    assert console.run("token", "revoke", "leaver").returncode == 0
    time.sleep(1)  # what is promised
    assert status(console, token) == 401
    assert console.run("token", "revoke", "leaver").returncode == 0
    assert [row["name"] for row in console.audit("token_revoked")] == ["leaver"]
    assert console.run("token", "revoke", "nobody").returncode == 1


def test_a_name_is_one_tokens_for_ever(console: ConsoleProcess) -> None:
    """The name of a token cannot be used again, because the audit names tokens."""
    console.token("unique")
    again = console.run("token", "add", "unique", "--role", "admin", "--days", "1")
    assert again.returncode == 1
    assert again.stdout == ""
    assert console.run("token", "add", "a\nb", "--role", "viewer", "--days", "1").returncode == 1
    assert console.run("token", "add", "x", "--role", "boss", "--days", "1").returncode == 2
    assert console.run("token", "add", "x", "--role", "viewer", "--days", "-1").returncode == 2


@pytest.mark.parametrize("token", ["", "x", "sebc_", "sebc_\xe9", "sebc_" + "A" * 60_000])
def test_what_is_not_a_token_is_401(console: ConsoleProcess, token: str) -> None:
    """Any text that is not a token is answered 401, even if a proxy names a person with a role."""
    assert status(console, token, **{"X-Forwarded-User": "root"}) in (400, 401, 431)


def test_a_bearer_token_alone_counts(console: ConsoleProcess) -> None:
    """A bad token beside a proxy's user is refused; a good one has its own role and not the
    user's.
    """
    token = console.token("alone")
    named = {"X-Forwarded-User": "root"}
    assert status(console, token, **named) == 200
    assert status(console, "sebc_wrong", **named) == 401
    assert status(console, f"{token}x", **named) == 401


def test_a_token_is_never_read_from_url_or_cookie(console: ConsoleProcess) -> None:
    """A token in a URL or a cookie is ignored, because URLs are logged and other sites can send
    cookies.
    """
    token = console.token("elsewhere")
    bare = {"Authorization": None}
    for path in (f"/api/v1/vms?access_token={token}", f"/api/v1/vms?token={token}"):
        assert console.http.get(console.url + path, headers=bare, timeout=10).status_code == 401
    for name in ("token", "session", "seb-session", "__Host-seb-session", "Authorization"):
        headers = {**bare, "Cookie": f"{name}={token}"}
        found = console.http.get(f"{console.url}/api/v1/vms", headers=headers, timeout=10)
        assert found.status_code == 401


def test_a_bad_token_is_in_the_audit(console: ConsoleProcess) -> None:
    """A bad token is in the audit with its origin and without its text; a flood of them makes few
    rows.
    """
    for n in range(100):
        assert status(console, f"sebc_guess{n}") == 401
    bad = [row for row in console.audit("refused") if row["reason"] == "bad_token"]
    assert 0 < len(bad) < 20
    assert bad[0]["peer"] == "127.0.0.1"
    assert "guess" not in json.dumps(bad)


def test_strangers_silence_no_row_of_a_person(database: Database) -> None:
    """Strangers share one budget of rows, so a person's refusal is in the audit."""
    refused_attempts = RefusedAttempts(database, monotonic=lambda: 0.0)

    def attempt(actor: str, reason: str) -> RefusedAttempt:
        return RefusedAttempt(actor=actor, reason=reason, peer="p", method="GET", path="/")

    async def flood() -> None:
        for n in range(75):
            await refused_attempts.audit(attempt("unknown", f"login_{n}"))
        await refused_attempts.audit(attempt("val", "not_allowed"))

    asyncio.run(flood())
    rows = [as_json(row) for row in all_rows(database.reading)]
    assert len([row for row in rows if row["actor"] == "unknown"]) == 60
    assert [row["reason"] for row in rows if row["actor"] == "val"] == ["not_allowed"]


def test_a_flood_of_attempts_leaves_few_rows(database: Database) -> None:
    """A flood makes one row a minute of each kind, and 60 at once in all; each row says how many
    are not written.
    """
    now = [0.0]
    refused_attempts = RefusedAttempts(database, monotonic=lambda: now[0])

    def attempt(peer: int) -> RefusedAttempt:
        return RefusedAttempt(
            actor="unknown", reason="bad_token", peer=str(peer), method="GET", path="/" * 9999
        )

    async def flood() -> None:
        for _ in range(100):
            await refused_attempts.audit(attempt(0))
        now[0] = 61
        for n in range(5000):
            await refused_attempts.audit(attempt(n))

    asyncio.run(flood())
    rows = [as_json(row) for row in all_rows(database.reading)]
    assert len(rows) == 61
    assert rows[1]["unwritten"] == 99
    assert len(rows[1]["path"]) == 200


def test_a_site_limits_what_a_token_sees(console: ConsoleProcess) -> None:
    """A token of one site sees nothing of the other one in lists, counts, single items and
    pages.
    """
    headers = {"Authorization": f"Bearer {console.token('south-only', '--site', 'south')}"}

    def answer_of(path: str) -> str:
        return console.http.get(f"{console.url}{path}", headers=headers, timeout=10).text

    north, south = (FakeVm(name=f"web-{site}", site=site) for site in ("north", "south"))
    for path in ("vms", "events", "vms?site=north", "events?site=north", "events?q=north"):
        assert "north" not in answer_of(f"/api/v1/{path}")
    assert "web-south" in answer_of("/api/v1/vms")
    assert "E-south" in answer_of("/api/v1/events")
    overview = json.loads(answer_of("/api/v1/overview"))
    assert overview["vms"]["total"] == overview["conditions"]["scheduled"] == 1
    assert south.name in answer_of(f"/api/v1/vms/{south.vm_id}")
    for path in (f"vms/{north.vm_id}", "events/E-north"):
        found = console.http.get(f"{console.url}/api/v1/{path}", headers=headers, timeout=10)
        assert found.status_code == 404
        missing = console.http.get(f"{console.url}/api/v1/{path}x", headers=headers, timeout=10)
        assert found.text == missing.text
    for path in ("/", "/fleet", "/audit"):
        page = console.http.get(console.url + path, headers=headers, timeout=10)
        assert page.status_code == 403
        assert "north" not in page.text


def test_a_stream_is_of_the_tokens_site_and_ends_with_it(console: ConsoleProcess) -> None:
    """A token's stream has only the events of its site, and ends within two seconds after a
    revocation.
    """
    token = console.token("listener", "--site", "south")
    headers = {"Authorization": f"Bearer {token}"}
    stream = console.http.get(
        f"{console.url}/api/v1/stream", headers=headers, stream=True, timeout=20
    )
    with stream:
        lines = stream.iter_lines()
        assert b"connected" in b"".join(next(lines) for _ in range(2))
        for site in ("north", "south"):
            vm = FakeVm(name=f"new-{site}", site=site)
            assert console.post(vm.event(f"N-{site}")).status_code == 204
        heard = next(line for line in lines if b"south" in line)
        assert b"north" not in heard
        assert console.run("token", "revoke", "listener").returncode == 0
        rest = b"".join(lines)
    assert b"north" not in rest


def test_one_token_cannot_take_the_streams_of_others(console: ConsoleProcess) -> None:
    """A token has at most thirty streams; those of other tokens are not affected."""
    greedy, other = (
        {"Authorization": f"Bearer {console.token(name)}"} for name in ("greedy", "modest")
    )
    address = f"{console.url}/api/v1/stream"
    with ExitStack() as stack:
        open_ones = []
        for _ in range(30):
            answer = console.http.get(address, headers=greedy, stream=True, timeout=20)
            lines = stack.enter_context(answer).iter_lines()
            assert next(lines) == b"retry: 2000"
            open_ones.append(lines)
        with console.http.get(address, headers=greedy, stream=True, timeout=20) as answer:
            assert answer.status_code == 429
        with console.http.get(address, headers=other, stream=True, timeout=20) as answer:
            assert answer.status_code == 200


@pytest.mark.parametrize("running", [True, False])
def test_the_command_needs_no_console(tmp_path: Path, running: bool) -> None:
    """The command makes the database if it is missing, and a console accepts the token from its
    start on.
    """
    console = ConsoleProcess(tmp_path / "console", LOGIN__MODE="none")
    if running:
        with console:
            assert status(console, console.token("first")) == 200
    else:
        token = console.token("first")
        with console:
            assert status(console, token) == 200
            assert status(console, "sebc_wrong") == 401, "without a login, a token still counts"


def test_both_databases_hold_tokens(database: Database) -> None:
    """Tokens are added, revoked and listed in the same way on SQLite and on PostgreSQL."""
    text = add_token(database, "ci", role="viewer", site=None, days=1, actor="local:me", now=100.0)
    assert text.startswith("sebc_")
    row = list_tokens(database)[0]
    assert (row.name, row.ends_at, row.is_good(100.0), row.is_good(86_500.0)) == (
        "ci",
        86_500.0,
        True,
        False,
    )
    with pytest.raises(RefusedError):
        add_token(database, "ci", role="viewer", site=None, days=1, actor="local:me", now=100.0)
    end_token(database, "ci", actor="local:me", now=200.0)
    end_token(database, "ci", actor="local:me", now=300.0)
    assert list_tokens(database)[0].revoked_at == 200.0
    with pytest.raises(RefusedError):
        end_token(database, "other", actor="local:me", now=200.0)


def test_a_guest_leaves_the_lock_to_the_console(database: Database) -> None:
    """A command beside a console takes no lock, and a second console is still refused."""
    guest = Database(database.url)
    try:
        guest.join()
        assert list_tokens(guest) == []
        if database.is_sqlite:
            with pytest.raises(ConfigurationError, match="in use by another console"):
                guest.open()
    finally:
        guest.close()


def test_who_has_a_site_decides_only_what_is_its_sites_alone() -> None:
    """A token of one site decides only events whose VMs are all of that site."""
    south = Person(name="token:ci", roles=frozenset({"approver"}), site="south", is_token=True)
    everywhere = Person(name="ann", roles=frozenset({"approver"}))
    vms = {site: Vm(vm_id=site, name=site, site=site) for site in ("north", "south")}

    def event(*sites: str) -> FleetEvent:
        return FleetEvent(
            event_id="E", state="scheduled", shown_by="x", shown_at=1, first_seen_at=1, sites=sites
        )

    assert sees_vm(south, vms["south"])
    assert not sees_vm(south, vms["north"])
    assert sees_event(south, event("north", "south"))
    assert not sees_event(south, event("north"))
    assert decides_event(south, event("south"), ["south"])
    assert not decides_event(south, event("south"), vms)
    assert not decides_event(south, event("north", "south"), ["south"])
    assert not decides_event(south, event(), [])
    assert decides_event(everywhere, event("north", "south"), vms)
