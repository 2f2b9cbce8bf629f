"""Sessions: how they end, on both databases; and to which paths a login may lead."""

from __future__ import annotations

import asyncio

import pytest
from starlette.datastructures import Headers
from starlette.responses import Response

from console.access.cookies import Cookies
from console.access.login import local_path
from console.access.sessions import Sessions, UsedLoginError
from console.config.login import LoginSettings
from console.config.settings import ConsoleSettings
from console.db.connection.opening import Database

LOGIN = LoginSettings(session_hours=8, idle_minutes=30)


class SessionClock:
    """A clock in seconds since 1970 that a test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_session_ends_after_an_idle_time(database: Database) -> None:
    """A session ends after its idle time, which each request begins again."""
    clock = SessionClock()

    async def lives() -> None:
        sessions = Sessions(database, LOGIN, clock)
        value = await sessions.start("ann", ["ops"], login="l", ends="")
        for _ in range(3):
            clock.now += 29 * 60
            found = await Sessions(database, LOGIN, clock).find(value)
            assert found is not None
            assert (found.name, found.groups) == ("ann", ("ops",))
        clock.now += 30 * 60
        assert await sessions.find(value) is None
        assert await Sessions(database, LOGIN, clock).find(value) is None

    asyncio.run(lives())


def test_a_session_ends_after_its_whole_time(database: Database) -> None:
    """A session ends after its whole time although it is used; ended sessions are deleted at the
    next login.
    """
    clock = SessionClock()

    async def lives() -> None:
        sessions = Sessions(database, LOGIN, clock)
        value = await sessions.start("ann", [], login="l", ends="")
        for _ in range(31):
            clock.now += 15 * 60
            assert await Sessions(database, LOGIN, clock).find(value) is not None
        clock.now += 15 * 60
        assert await sessions.find(value) is None
        await sessions.start("bob", [], login="m", ends="")
        clock.now -= 60 * 60
        assert await Sessions(database, LOGIN, clock).find(value) is None

    asyncio.run(lives())


def test_a_login_succeeds_once(database: Database) -> None:
    """A login's answer that is sent again makes no session, and ends none."""

    async def twice() -> None:
        sessions = Sessions(database, LOGIN)
        value = await sessions.start("ann", [], login="same", ends="")
        with pytest.raises(UsedLoginError):
            await sessions.start("ann", [], login="same", ends=value)
        assert await sessions.find(value) is not None

    asyncio.run(twice())


def test_a_session_ends_with_the_next_login_or_the_logout(database: Database) -> None:
    """The next login or the logout ends a session at once at this console, and its streams at other
    consoles.
    """

    async def ends() -> None:
        sessions = Sessions(database, LOGIN)
        first = await sessions.start("ann", [], login="1", ends="")
        row = await sessions.find(first)
        assert row is not None
        assert await sessions.ended([row.hash]) == set()
        second = await sessions.start("ann", [], login="2", ends=first)
        assert await sessions.find(first) is None
        assert await sessions.ended([row.hash]) == {row.hash}
        await sessions.end(second)
        await sessions.end(second)
        assert await sessions.find(second) is None

    asyncio.run(ends())


@pytest.mark.parametrize("hours", [0.6, 9])
def test_a_stream_ends_with_a_session_that_ends_by_itself(database: Database, hours: float) -> None:
    """A stream ends when its session expires, although no request follows."""
    clock = SessionClock()

    async def ends() -> None:
        sessions = Sessions(database, LOGIN, clock)
        row = await sessions.find(await sessions.start("ann", [], login="l", ends=""))
        assert row is not None
        assert await sessions.ended([row.hash]) == set()
        clock.now += hours * 3600
        assert await sessions.ended([row.hash]) == {row.hash}

    asyncio.run(ends())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "//evil.example",
        "/\\evil.example",
        "https://evil.example/",
        "/\t/evil.example",
        "/a\r\nSet-Cookie: x=y",
        "javascript:alert(1)",
        "/" + "x" * 3000,
        "/login",
        "/login/callback?code=x",
        "/é",
    ],
)
def test_a_login_leads_to_no_foreign_place(text: str) -> None:
    """A target that is not a path of the console leads to its first page."""
    assert local_path(text) == "/"
    assert local_path("/events/E?q=%2F%2Fx#y") == "/events/E?q=%2F%2Fx#y"


def test_cookies_belong_to_this_host_where_people_come_by_https() -> None:
    """With https the cookies have the prefix `__Host-`, which needs Secure, the path / and no
    domain.
    """
    login = LoginSettings(mode="proxy", proxies=("127.0.0.1",))
    cookies = Cookies(ConsoleSettings(public_url="https://console.example", login=login))
    response = Response()
    cookies.set_session(response, "v")
    cookies.set_login(response, "s")
    for cookie in response.headers.getlist("set-cookie"):
        name, *rest = cookie.split("; ")
        assert name.startswith("__Host-seb-")
        assert {"HttpOnly", "Path=/", "SameSite=lax", "Secure"} <= set(rest)
        assert "Domain" not in cookie
    pairs = "; ".join(c.split(";")[0] for c in response.headers.getlist("set-cookie"))
    headers = Headers({"cookie": pairs})
    assert cookies.session_in(headers) == "v"
    assert cookies.login_in(headers) == "s"
    assert cookies.login_in(Headers({"cookie": ""})) is None
