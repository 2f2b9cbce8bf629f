"""Logging in at a real OpenID provider, as a browser does it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.console.process import ConsoleProcess
from support.eventually import eventually
from support.oidc.real_provider import Browser, OidcProvider

_SECRET = "s3cret:/ %"
_GROUPS = {"ann": ["ops", "dev"], "bob": ["dev"]}
_ROLES = '{"viewer": ["group:ops"], "approver": ["user:ann@example"]}'


def console_at(directory: Path, **settings: str) -> ConsoleProcess:
    """Return a console with a provider as its login; it is not started."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "secret").write_text(_SECRET + "\n")
    oidc = {
        "LOGIN__MODE": "oidc",
        "LOGIN__CLIENT_ID": "console",
        "LOGIN__CLIENT_SECRET_FILE": str(directory / "secret"),
        "ROLES": _ROLES,
    }
    return ConsoleProcess(directory, **(oidc | settings))


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> ConsoleProcess:
    """A console that is not started yet, because the provider has to know its address."""
    return console_at(tmp_path_factory.mktemp("console"))


@pytest.fixture(scope="module")
def provider(console: ConsoleProcess) -> Iterator[OidcProvider]:
    """The provider, with a running console."""
    redirect = f"{console.url}/login/callback"
    with OidcProvider(redirect, secret=_SECRET, groups=_GROUPS) as running:
        console.environ["SEB_CONSOLE_LOGIN__ISSUER"] = running.issuer
        with console:
            yield running


@pytest.fixture
def browser(console: ConsoleProcess, provider: OidcProvider) -> Browser:
    """A browser without a login."""
    return Browser(console.url)


def test_a_login_leads_to_the_page_that_was_wanted(
    console: ConsoleProcess, browser: Browser
) -> None:
    """A login leads to the requested page; group and name give roles, and the cookie is an id that
    no script can read.
    """
    page = browser.log_in("ann", "/fleet?q=a%20b")
    assert (page.status_code, page.url) == (200, f"{console.url}/fleet?q=a%20b")
    assert browser.get("/api/v1/overview").status_code == 200
    set_cookie = page.history[-1].headers["set-cookie"].lower()
    assert "httponly" in set_cookie
    assert "samesite=lax" in set_cookie
    value = browser.http.cookies["seb-session"]
    assert len(value) == 43
    stored = b"".join(each.read_bytes() for each in console.directory.glob("console.db*"))
    assert value.encode() not in stored
    assert [row["actor"] for row in console.audit("logged_in")][-1] == "ann@example"


def test_a_stranger_is_redirected_and_a_program_refused(browser: Browser) -> None:
    """Without a login, pages answer 302, and the API and the requests of scripts 401."""
    page = browser.http.get(f"{browser.console}/audit", allow_redirects=False, timeout=10)
    assert (page.status_code, page.headers["location"]) == (302, "/login?leads_to=%2Faudit")
    api = browser.get("/api/v1/events")
    assert (api.status_code, api.headers["www-authenticate"]) == (401, "Bearer")
    assert browser.get("/", **{"Sec-Fetch-Dest": "empty"}).status_code == 401


def test_without_a_role_a_person_sees_nothing(console: ConsoleProcess, browser: Browser) -> None:
    """A person without a role sees a page with their name and a button to log out."""
    page = browser.fill_in(browser.get("/", Accept="text/html"), "bob")
    assert page.status_code == 403
    page = browser.get("/", Accept="text/html")
    assert "There is no role for bob@example" in page.text
    assert 'action="/logout"' in page.text
    assert browser.get("/api/v1/vms").status_code == 403
    refused = [row for row in console.audit("refused") if row["actor"] == "bob@example"]
    assert refused[0]["reason"] == "no_role"


def test_a_session_that_was_logged_out_is_over_for_who_copied_it(
    console: ConsoleProcess, browser: Browser
) -> None:
    """Logging out ends the session for copies of its cookie, and closes its open streams."""
    browser.log_in("ann")
    thief = Browser(console.url)
    thief.http.cookies.set("seb-session", browser.http.cookies["seb-session"])
    assert thief.get("/api/v1/vms").status_code == 200
    stream = thief.http.get(f"{console.url}/api/v1/stream", stream=True, timeout=20)
    with stream:
        lines = stream.iter_lines()
        next(lines)
        page = browser.post("/logout")
        assert (page.url, page.status_code) == (f"{console.url}/logged-out", 200)
        list(lines)
    assert thief.get("/api/v1/vms").status_code == 401
    assert "seb-session" not in browser.http.cookies
    assert console.audit("logged_out")


def test_a_login_makes_a_new_session_id(console: ConsoleProcess, browser: Browser) -> None:
    """A login never takes over the session id in the request, and ends that session."""
    browser.http.cookies.set("seb-session", "planted")
    browser.log_in("ann")
    first = browser.http.cookies.get_dict(domain="127.0.0.1")["seb-session"]
    assert first != "planted"
    browser.get("/login?leads_to=/")
    second = browser.http.cookies.get_dict(domain="127.0.0.1")["seb-session"]
    assert second != first
    old = Browser(console.url)
    old.http.cookies.set("seb-session", first)
    assert old.get("/api/v1/vms").status_code == 401


def test_a_code_is_good_once_and_for_its_browser(console: ConsoleProcess, browser: Browser) -> None:
    """The provider's answer is refused if it is sent again or by another browser."""
    page = browser.log_in("ann")
    callback = next(each.url for each in page.history if "/login/callback?" in each.url)
    for again in (browser, Browser(console.url)):
        refused = again.http.get(callback, timeout=20)
        assert refused.status_code == 403
        assert "seb-session" not in refused.cookies
    reasons = {row["reason"] for row in console.audit("refused")}
    assert "login_wrong_state" in reasons


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}]
)
def test_another_site_cannot_log_anybody_out(browser: Browser, headers: dict[str, str]) -> None:
    """A logout form of another site or a neighbouring host is refused."""
    browser.log_in("ann")
    assert browser.post("/logout", **headers).status_code == 403
    assert browser.get("/api/v1/vms").status_code == 200
    assert browser.http.get(f"{browser.console}/logout", timeout=10).status_code == 405


def test_a_cookie_does_not_help_a_bad_token(browser: Browser) -> None:
    """If a request has a token and a cookie, only the token counts."""
    browser.log_in("ann")
    assert browser.get("/api/v1/vms", Authorization="Bearer sebc_x").status_code == 401


def test_who_is_logged_in_stays_so_while_the_provider_is_away(
    console: ConsoleProcess, provider: OidcProvider, browser: Browser
) -> None:
    """Sessions are valid while the provider does not answer; a login shows the problem, and works
    when the provider is back, also with new keys.
    """
    browser.log_in("ann")
    provider.stop()
    try:
        assert browser.get("/api/v1/vms").status_code == 200
        console.kill()
        console.start()
        assert browser.get("/api/v1/vms").status_code == 200, "sessions outlive the console"
        page = Browser(console.url).get("/", Accept="text/html")
        assert page.status_code == 503
        assert "the login provider does not answer" in page.text
        assert 'href="/login"' in page.text
    finally:
        provider.start()
    others = Browser(console.url)
    eventually(lambda: others.get("/login").status_code == 200, what="the provider's page")
    assert others.log_in("ann").status_code == 200


def test_new_keys_are_read_when_they_are_needed(
    console: ConsoleProcess, provider: OidcProvider, browser: Browser
) -> None:
    """A login with a new key of the provider, which the console does not know yet, succeeds."""
    browser.log_in("ann")
    provider.stop()
    provider.start()

    def logged_in() -> bool:
        other = Browser(console.url)
        return other.log_in("ann").status_code == 200

    eventually(logged_in, what="a login with the new keys")


@pytest.mark.parametrize("algorithm", ["PS256", "ES256"])
def test_a_public_client_with_other_names(tmp_path: Path, algorithm: str) -> None:
    """A provider without a client secret, with another signature algorithm and with Entra ID's
    claim `roles` works.
    """
    console = console_at(
        tmp_path / "console",
        LOGIN__GROUPS_CLAIM="roles",
        LOGIN__NAME_CLAIM="sub",
        ROLES='{"approver": ["group:Approvers"]}',
    )
    del console.environ["SEB_CONSOLE_LOGIN__CLIENT_SECRET_FILE"]
    redirect = f"{console.url}/login/callback"
    provider = OidcProvider(
        redirect, secret=None, algorithm=algorithm, groups={"zoe": ["Approvers"]}, claim="roles"
    )
    console.environ["SEB_CONSOLE_LOGIN__ISSUER"] = provider.issuer
    with provider, console:
        assert Browser(console.url).log_in("zoe").status_code == 200
        assert console.audit("logged_in")[0]["actor"] == "zoe"
