"""Who may see the console: no login, a trusted proxy, roles, and nobody else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.datastructures import Headers
from support.console.process import ConsoleProcess

from console.access.people import proxied_person, roles_of
from console.config.load import load
from sinks.shared.errors import ConfigurationError

_ROLES = '{"viewer": ["group:ops"], "approver": ["user:ann"], "admin": ["user:root"]}'


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console behind a proxy on this machine, which others can reach as console.example."""
    settings = {
        "LOGIN__MODE": "proxy",
        "LOGIN__PROXIES": '["127.0.0.1"]',
        "ROLES": _ROLES,
        "PUBLIC_URL": "https://console.example",
    }
    with ConsoleProcess(tmp_path_factory.mktemp("console"), **settings) as running:
        yield running


def status(console: ConsoleProcess, path: str = "/api/v1/vms", **headers: str) -> int:
    """Return the status of a GET with headers; `_` stands for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return console.http.get(console.url + path, headers=named, timeout=10).status_code


@pytest.mark.parametrize("path", ["/", "/fleet", "/api/v1/overview", "/api/v1/stream"])
def test_a_stranger_sees_nothing(console: ConsoleProcess, path: str) -> None:
    """A request without the proxy's header is answered 401."""
    assert status(console, path) == 401


def test_a_user_without_a_role_sees_nothing(console: ConsoleProcess) -> None:
    """A user without a role is answered 403."""
    assert status(console, X_Forwarded_User="bob") == 403
    assert status(console, X_Forwarded_User="bob", X_Forwarded_Groups="opsx, dev") == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"X_Forwarded_User": "ann"},
        {"X_Forwarded_User": "bob", "X_Forwarded_Groups": "dev, ops"},
        {"X_Forwarded_User": "root"},
    ],
)
def test_a_role_lets_in(console: ConsoleProcess, headers: dict[str, str]) -> None:
    """A user with a role, by name or by group, sees the console."""
    assert status(console, **headers) == 200
    assert status(console, Host="console.example", **headers) == 200
    assert status(console, Host="evil.example", **headers) == 421


@pytest.mark.parametrize(
    "path", ["/?q=%00", "/fleet?site=%00", "/vms/%00", "/api/v1/events/%00", "/api/v1/vms/%00"]
)
def test_an_address_with_a_nul_is_a_bad_request(console: ConsoleProcess, path: str) -> None:
    """An address with a NUL, which PostgreSQL cannot search for, is a bad request and no problem of
    the database.
    """
    assert status(console, path, X_Forwarded_User="root") == 400


def test_health_needs_no_login(console: ConsoleProcess) -> None:
    """Probes and Prometheus are answered without a login, and the answers name nobody."""
    for path in ("/healthz", "/readyz", "/metrics"):
        assert status(console, path) == 200


def test_every_answer_forbids_frames_and_foreign_code(console: ConsoleProcess) -> None:
    """Every answer, also a refusal, forbids frames and code from elsewhere."""
    for headers in ({}, {"X-Forwarded-User": "ann"}):
        answer = console.http.get(console.url, headers=headers, timeout=10)
        policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "script-src 'self'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.fixture(scope="module")
def unprotected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console without a login, for the person at this machine."""
    with ConsoleProcess(tmp_path_factory.mktemp("unprotected")) as running:
        yield running


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "10.0.0.9"},
        {"X-Forwarded-Proto": "https"},
        {"X-Real-IP": "10.0.0.9"},
        {"Forwarded": "for=10.0.0.9"},
        {"Via": "1.1 proxy"},
        {"Host": "console.example"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/v1/vms", "/api/v1/stream", "/static/page.js"])
def test_nothing_but_what_vms_ask_is_reached_through_a_proxy(
    unprotected: ConsoleProcess, path: str, headers: dict[str, str]
) -> None:
    """In a console without a login, where everybody has every role, requests through a proxy reach
    only the paths of VMs.
    """
    get = unprotected.http.get
    assert get(unprotected.url + path, headers=headers, timeout=10).status_code in (403, 421)
    address = f"{unprotected.url}/ingest/v1/records"
    answer = unprotected.http.post(address, data=b"{}", headers=headers, timeout=10)
    assert answer.status_code == 400
    assert "record" in answer.text


def test_a_proxy_that_says_nothing_of_itself_is_seen_by_its_protocol(
    unprotected: ConsoleProcess,
) -> None:
    """A request with HTTP/1.0, as nginx sends it by default, counts as one through a proxy."""
    with socket.create_connection(("127.0.0.1", unprotected.port), 10) as connection:
        head = f"GET /api/v1/vms HTTP/1.0\r\nHost: 127.0.0.1:{unprotected.port}\r\n\r\n"
        connection.sendall(head.encode())
        assert b" 403 " in connection.recv(65536).split(b"\r\n")[0]


def test_only_the_connections_own_peer_is_a_proxy() -> None:
    """A header with a proxy's address makes no client a trusted proxy."""
    login = load(
        environ={"SEB_CONSOLE_LOGIN__MODE": "proxy", "SEB_CONSOLE_LOGIN__PROXIES": '["10.0.0.7"]'}
    ).login
    headers = Headers({"x-forwarded-user": "ann", "x-forwarded-for": "10.0.0.7"})
    roles: dict[Any, Any] = {"approver": ("user:ann",)}
    assert proxied_person(login, roles, peer="10.0.0.8", headers=headers) is None
    assert proxied_person(login, roles, peer="", headers=headers) is None
    found = proxied_person(login, roles, peer="10.0.0.7", headers=headers)
    assert found is not None
    assert (found.name, found.roles) == ("ann", {"approver"})
    assert proxied_person(login, roles, peer="::ffff:10.0.0.7", headers=headers) == found


@pytest.mark.parametrize("name", ["", " ", "x" * 201, "a\nb", "a\u202eb", "token:ci", "Local:root"])
def test_a_name_that_is_none_logs_nobody_in(name: str) -> None:
    """A name that is too long or not printable logs nobody in, because names are written to the
    audit.
    """
    login = load(
        environ={"SEB_CONSOLE_LOGIN__MODE": "proxy", "SEB_CONSOLE_LOGIN__PROXIES": '["10.0.0.7"]'}
    ).login
    assert proxied_person(login, {}, peer="10.0.0.7", headers=named(name)) is None


def named(*names: str) -> Headers:
    """Return the headers in which a proxy names users, as they are sent."""
    return Headers(raw=[(b"x-forwarded-user", name.encode()) for name in names])


def test_a_header_that_stands_there_twice_is_not_believed() -> None:
    """A header that occurs twice is refused, because one of the two may be the client's own."""
    login = load(
        environ={"SEB_CONSOLE_LOGIN__MODE": "proxy", "SEB_CONSOLE_LOGIN__PROXIES": '["10.0.0.7"]'}
    ).login
    found = proxied_person(login, {}, peer="10.0.0.7", headers=named("Jörg"))
    assert found is not None
    assert found.name == "Jörg"
    assert proxied_person(login, {}, peer="10.0.0.7", headers=named("ann", "bob")) is None


def test_a_group_is_not_a_user() -> None:
    """A user whose name is that of a group does not have the group's role."""
    roles: dict[Any, Any] = {"approver": ("group:ops",), "admin": ("user:ann",)}
    assert roles_of(roles, user="ops", groups=[]) == frozenset()
    assert roles_of(roles, user="group:ops", groups=["user:ann"]) == frozenset()
    assert roles_of(roles, user="ann", groups=["ops"]) == {"approver", "admin"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"LISTEN": "0.0.0.0:9470"}, "SEB_CONSOLE_LOGIN"),
        ({"PUBLIC_URL": "https://console.example"}, "set SEB_CONSOLE_LOGIN__MODE to proxy"),
        ({"LISTEN": "nowhere"}, "SEB_CONSOLE_LISTEN: this is not ADDRESS:PORT"),
        ({"LOGIN__MODE": "proxy"}, "SEB_CONSOLE_LOGIN__PROXIES"),
        ({"LOGIN__MODE": "proxy", "LOGIN__PROXIES": '["all"]'}, "SEB_CONSOLE_LOGIN__PROXIES"),
        ({"ROLES": '{"boss": ["user:a"]}'}, "SEB_CONSOLE_ROLES"),
        ({"ROLES": '{"viewer": ["ann"]}'}, "SEB_CONSOLE_ROLES: each entry begins with user:"),
        ({"ROLES": "viewer"}, "SEB_CONSOLE_ROLES: this is not JSON"),
        ({"DATABASE": "mysql://u:hunter2@h/d"}, "SEB_CONSOLE_DATABASE"),
        ({"SILENT_AFTER": "-1"}, "SEB_CONSOLE_SILENT_AFTER"),
        ({"PUBLIC_URL": "console.example"}, "SEB_CONSOLE_PUBLIC_URL"),
        ({"APPROVAL__FOUREYES": "2"}, "did you mean SEB_CONSOLE_APPROVAL__FOUR_EYES?"),
        ({"LISTEN__X": "1", "LISTEN": "127.0.0.1:1"}, "SEB_CONSOLE_LISTEN__X"),
    ],
)
def test_a_wrong_setting_is_named(environ: dict[str, str], expected: str) -> None:
    """Every error about a setting names the variable and shows no value."""
    named = {f"SEB_CONSOLE_{name}": value for name, value in environ.items()}
    with pytest.raises(ConfigurationError) as caught:
        load(environ=named)
    assert expected in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "mysql" not in str(caught.value)
