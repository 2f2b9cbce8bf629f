"""The commands of `seb console`, as a person runs them."""

from __future__ import annotations

import http.server
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto
from support.ports import free_port
from support.postgresql import PostgreSql
from support.sinks.throwaway_ca import ThrowawayCa


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console with one VM and one event, whose texts have control characters."""
    with ConsoleProcess(tmp_path_factory.mktemp("console")) as running:
        vm = FakeVm(name="evil\x1b[31m")
        assert running.post(vm.event("E1", resources=[vm.name])).status_code == 204
        eventually(lambda: "E1" in running.events(), what="the event")
        yield running


def run(console: ConsoleProcess, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command against the console."""
    return subprocess.run(
        console.command(*words),
        env={**console.environ, "SEB_CONSOLE_URL": console.url, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", ["events", "vms"])
def test_a_list_is_readable_and_json(console: ConsoleProcess, command: str) -> None:
    """A list is a table without control characters, or the API's JSON."""
    table = run(console, command)
    assert table.returncode == 0, table.stderr
    assert "evil\ufffd[31m" in table.stdout
    assert "\x1b" not in table.stdout
    answer = json.loads(run(console, command, "--json").stdout)
    params = {"state": "open"} if command == "events" else {}
    assert answer["items"] == console.get(command, **params)["items"]


def test_no_console_is_exit_code_69(console: ConsoleProcess) -> None:
    """Without a console the exit code is 69, with the address and a remedy."""
    done = run(console, "vms", SEB_CONSOLE_URL=f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 69
    assert "seb console run" in done.stderr


@pytest.fixture
def behind_tls(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A stand-in for the proxy before a console, with a certificate of a private authority: its
    address, and that authority's certificate. It requires a bearer token.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            good = self.headers["Authorization"] == "Bearer t0ken"
            self.send_response(200 if good else 401)
            self.end_headers()
            self.wfile.write(b'{"items": [], "next": null}')

        def log_message(self, *_: object) -> None:
            pass

    ca = ThrowawayCa(tmp_path / "ca")
    pair = ca.server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"https://127.0.0.1:{server.server_port}", ca.cert
        server.shutdown()


def test_a_private_authority_is_trusted_by_its_variable(
    console: ConsoleProcess, behind_tls: tuple[str, Path]
) -> None:
    """The commands accept the private authority that SSL_CERT_FILE names; without it the error says
    what is wrong.
    """
    url, authority = behind_tls
    environ = {"SEB_CONSOLE_URL": url, "SEB_CONSOLE_TOKEN": "t0ken"}
    refused = run(console, "vms", **environ)
    assert refused.returncode == 69
    assert "SSL_CERT_FILE" in refused.stderr
    done = run(console, "vms", "--json", **environ, SSL_CERT_FILE=str(authority))
    assert done.returncode == 0, done.stderr


def test_a_netrc_does_not_replace_the_token(
    console: ConsoleProcess, behind_tls: tuple[str, Path], tmp_path: Path
) -> None:
    """A password in .netrc for the host is not sent, and does not replace the token."""
    url, authority = behind_tls
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login mia password s3cret\n")
    netrc.chmod(0o600)
    environ = {"SEB_CONSOLE_URL": url, "SEB_CONSOLE_TOKEN": "t0ken", "NETRC": str(netrc)}
    done = run(console, "vms", "--json", **environ, SSL_CERT_FILE=str(authority))
    assert done.returncode == 0, done.stderr


def test_a_password_in_the_address_is_not_repeated(console: ConsoleProcess) -> None:
    """A password in the address is refused and not shown, and the message names the setting for a
    token.
    """
    done = run(console, "vms", SEB_CONSOLE_URL=f"http://mia:s3cret@127.0.0.1:{free_port()}")
    assert done.returncode == 78
    assert "SEB_CONSOLE_TOKEN" in done.stderr
    assert "s3cret" not in done.stderr


def test_a_typo_in_a_setting_is_exit_code_78(console: ConsoleProcess) -> None:
    """An unknown setting ends with 78, and the nearest name is suggested."""
    done = run(console, "run", SEB_CONSOLE_LOGIN__MOD="none")
    assert done.returncode == 78
    assert "did you mean SEB_CONSOLE_LOGIN__MODE?" in done.stderr


def test_without_a_login_only_loopback_is_listened_on(console: ConsoleProcess) -> None:
    """A console without a login refuses to start on an address that others can reach."""
    done = run(console, "run", SEB_CONSOLE_LISTEN="0.0.0.0:0")
    assert done.returncode == 78
    assert "SEB_CONSOLE_LOGIN" in done.stderr


def test_check_looks_at_everything(tmp_path: Path) -> None:
    """`check` has a line for each step: a broker that answers is ok, and one that does not is
    69.
    """
    with Mosquitto(tmp_path / "broker") as broker:
        settings = {
            "SOURCE__BROKER__KIND": "mqtt",
            "SOURCE__BROKER__HOST": broker.host,
            "SOURCE__BROKER__PORT": str(broker.port),
        }
        console = ConsoleProcess(tmp_path / "console", **settings)
        good = run(console, "check")
        assert good.returncode == 0, good.stdout + good.stderr
        assert "ok    source broker" in good.stdout
        assert "ok    database" in good.stdout
    bad = run(console, "check")
    assert bad.returncode == 69
    assert "fail  source broker" in bad.stdout


@pytest.mark.parametrize(
    ("address", "words", "remedy"),
    [
        ("seb@127.0.0.1:1/seb", "Connection refused", "see that the server runs"),
        ("seb@db.invalid/seb", "failed to resolve host", "see that the server runs"),
        ("seb@{place}/none", 'database "none" does not exist', "CREATE DATABASE"),
        ("absent@{place}/refusals", 'role "absent" does not exist', "the user and the password"),
        ("poor@{place}/refusals", "permission denied for schema public", "ALTER DATABASE"),
        ("seb@{place}/refusals?sslmode=require", "does not support SSL", "sslmode"),
        ("seb@{place}/a_role_ssl", 'database "a_role_ssl" does not exist', "CREATE DATABASE"),
        ("seb@{place}/refusals?sslmode=no", "sslmode", "SEB_CONSOLE_DATABASE"),
    ],
)
def test_a_database_that_refuses_has_a_remedy(
    tmp_path: Path, postgresql: PostgreSql, address: str, words: str, remedy: str
) -> None:
    """`check` shows PostgreSQL's refusal with a remedy; exit code 69."""
    with suppress(psycopg.errors.DuplicateDatabase):
        url = postgresql.database("refusals")
        postgresql.execute(url, "CREATE ROLE poor LOGIN")
        postgresql.execute(url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    place = f"127.0.0.1:{postgresql.port}"
    console = ConsoleProcess(tmp_path, DATABASE=f"postgresql://{address.format(place=place)}")
    done = console.run("check")
    assert done.returncode == 69, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("fail  database: ")]
    said, _, advice = line.partition("; ")
    assert words in said
    assert remedy in advice


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")
def test_a_key_that_every_account_can_read_is_a_warning(tmp_path: Path) -> None:
    """`check` and the log of a start warn of a key file that every account can read, with a remedy,
    and show nothing of it.
    """
    console = ConsoleProcess(tmp_path)
    console.key_file.chmod(0o644)
    words = f"chmod o-r {console.key_file}"
    done = console.run("check")
    assert (done.returncode, f"warn  {console.key_file}" in done.stdout) == (0, True)
    assert words in done.stdout
    with console:
        assert words in console.log
    console.key_file.chmod(0o640)
    assert words not in console.run("check").stdout


def test_check_beside_the_running_console(console: ConsoleProcess) -> None:
    """Beside the console of the same settings, `check` finds port and database in use by it, and no
    error.
    """
    done = run(console, "check", SEB_CONSOLE_LISTEN=console.url.removeprefix("http://"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok    listen: a console runs at" in done.stdout
    assert "which the running console uses" in done.stdout


def test_the_bridge_ignores_the_consoles_settings() -> None:
    """A bridge starts with the console's variables in its environment."""
    environ = {**os.environ, "SEB_CONSOLE_LISTEN": "127.0.0.1:1", "SEB_CONSOLE_NONSENSE": "x"}
    done = subprocess.run(
        [sys.executable, "-m", "bridge", "config", "show"],
        env=environ,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_console_is_not_imported_by_a_bridge() -> None:
    """`seb version` and `seb run --help` import no library of the console."""
    code = (
        "import sys\n"
        "from bridge.cli import seb\n"
        "seb.main(['run', '--help'], standalone_mode=False)\n"
        "import bridge.cli.run\n"
        "wrong = {'console', 'sqlalchemy', 'starlette', 'uvicorn', 'alembic'} & set(sys.modules)\n"
        "sys.exit(str(wrong) if wrong else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_without_the_extra_the_command_says_what_to_install() -> None:
    """Without the console's libraries the command names the extra, with exit code 78."""
    code = (
        "import sys\n"
        "sys.modules['sqlalchemy'] = None\n"
        "sys.argv = ['seb', 'console', 'run']\n"
        "from bridge.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 78
    assert "scheduled-events-bridge[console]" in done.stderr
