"""Lies of a provider, a network or a neighbouring host: none of them logs anybody in."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from support.console.process import ConsoleProcess
from support.eventually import eventually
from support.oidc.hostile_provider import BegunLogin, HostileProvider, ProviderKey, unsigned
from support.ports import free_port

Json = dict[str, Any]
Forge = Callable[[HostileProvider, str], object]


def console_at(directory: Path, issuer: str, **settings: str) -> ConsoleProcess:
    """Return a console with a provider; it is not started."""
    oidc = {"LOGIN__MODE": "oidc", "LOGIN__CLIENT_ID": "console", "LOGIN__ISSUER": issuer}
    roles = '{"viewer": ["group:ops"]}'
    return ConsoleProcess(directory, **(oidc | {"ROLES": roles} | settings))


@pytest.fixture(scope="module")
def shared() -> Iterator[HostileProvider]:
    """One provider for all tests."""
    with HostileProvider() as running:
        yield running


@pytest.fixture(scope="module")
def console(
    shared: HostileProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    """A console with this provider."""
    with console_at(tmp_path_factory.mktemp("console"), shared.issuer) as running:
        yield running


@pytest.fixture
def provider(shared: HostileProvider) -> HostileProvider:
    """The provider, which answers correctly until a test changes that."""
    shared.published, shared.metadata = [shared.key.public], {}
    shared.about, shared.token_status = None, 200
    return shared


def test_the_right_answer_logs_in(console: ConsoleProcess, provider: HostileProvider) -> None:
    """The correct answer, from which the attacks below differ, logs in, with PKCE and without the
    code in the next address.
    """
    attempt = BegunLogin(console.url)
    assert attempt.query["code_challenge_method"] == "S256"
    assert attempt.query["redirect_uri"] == f"{console.url}/login/callback"
    provider.id_token = provider.sign(provider.claims(attempt.nonce))
    answer = attempt.come_back()
    assert (answer.status_code, answer.headers["location"]) == (303, "/fleet?q=a")
    assert answer.headers["referrer-policy"] == "same-origin"
    assert attempt.status() == 200
    fields = next(each for path, each in reversed(provider.asked) if path == "/token")
    assert len(fields["code_verifier"]) == 43


def _signed(**changed: Any) -> Forge:
    return lambda provider, nonce: provider.sign(provider.claims(nonce, **changed))


def _hmac_with_the_public_key(provider: HostileProvider, nonce: str) -> str:
    secret = str(provider.key.public).encode().ljust(64)
    return jwt.encode(provider.claims(nonce), secret, "HS256", {"kid": "first"})


def _with_its_own_key(provider: HostileProvider, nonce: str) -> str:
    key = ProviderKey("first")
    header = {"jwk": key.public, "jku": f"{provider.issuer}/evil", "x5u": "http://127.0.0.1:9/"}
    return provider.sign(provider.claims(nonce), key=key, **header)


_FORGED: dict[str, tuple[Forge, str]] = {
    "issuer": (_signed(iss="https://evil.example"), "wrong_issuer"),
    "no issuer": (_signed(iss=None), "wrong_issuer"),
    "audience": (_signed(aud="other"), "wrong_audience"),
    "no audience": (_signed(aud=None), "wrong_audience"),
    "audience in another": (_signed(aud="console2"), "wrong_audience"),
    "two audiences": (_signed(aud=["console", "evil"]), "wrong_authorized_party"),
    "party": (_signed(azp="evil"), "wrong_authorized_party"),
    "nonce": (_signed(nonce="x" * 43), "wrong_nonce"),
    "no nonce": (_signed(nonce=None), "wrong_nonce"),
    "nonce as number": (_signed(nonce=1), "wrong_nonce"),
    "expired": (_signed(exp=int(time.time()) - 300), "expired"),
    "never ends": (_signed(exp=None), "no_time_in_exp"),
    "ends as text": (_signed(exp="9999999999"), "no_time_in_exp"),
    "from the future": (_signed(iat=int(time.time()) + 3600), "from_the_future"),
    "not before": (_signed(nbf=int(time.time()) + 3600), "from_the_future"),
    "no subject": (_signed(sub=None), "no_subject"),
    "a program's name": (_signed(preferred_username="token:ci"), "no_name"),
    "unseen signs": (_signed(preferred_username="ann\u202e"), "no_name"),
    "name as list": (_signed(preferred_username=["ann"]), "no_name"),
    "none": (
        lambda provider, nonce: unsigned(provider.claims(nonce), {"alg": "none", "typ": "JWT"}),
        "forbidden_algorithm",
    ),
    "None": (
        lambda provider, nonce: unsigned(provider.claims(nonce), {"alg": "None"}),
        "forbidden_algorithm",
    ),
    "HS256": (_hmac_with_the_public_key, "forbidden_algorithm"),
    "no signature": (
        lambda provider, nonce: unsigned(provider.claims(nonce), {"alg": "RS256", "kid": "first"}),
        "bad_signature",
    ),
    "key in the token": (_with_its_own_key, "bad_signature"),
    "unknown key": (
        lambda provider, nonce: provider.sign(provider.claims(nonce), key=ProviderKey("other")),
        "unknown_key",
    ),
    "critical": (
        lambda provider, nonce: provider.sign(provider.claims(nonce), crit=["x"], x=1),
        "",
    ),
    "not a token": (lambda _provider, _nonce: "a.b", "not_a_signed_token"),
    "a number": (lambda _provider, _nonce: 7, "no_ID_token"),
    "nothing": (lambda _provider, _nonce: None, "no_ID_token"),
    "huge": (lambda _provider, _nonce: "a" * 200_000, "no_ID_token"),
}


@pytest.mark.parametrize("kind", _FORGED)
def test_a_forged_id_token_logs_nobody_in(
    console: ConsoleProcess, provider: HostileProvider, kind: str
) -> None:
    """A forged ID token is answered 403 without a cookie, and the log has one reason."""
    forge, reason = _FORGED[kind]
    attempt = BegunLogin(console.url)
    provider.id_token = forge(provider, attempt.nonce)
    answer = attempt.come_back()
    assert answer.status_code == 403
    assert "seb-session" not in attempt.http.cookies
    assert attempt.status() == 401
    assert reason in answer.text
    eventually(lambda: f'"reason": "{reason}' in console.log, what="the log's line")
    assert "eyJ" not in console.log, "a token must not stand in the log"


def test_another_logins_answer_logs_nobody_in(
    console: ConsoleProcess, provider: HostileProvider
) -> None:
    """An answer with another login's state, nonce or cookie is refused."""
    victim, attacker = BegunLogin(console.url), BegunLogin(console.url)
    provider.id_token = provider.sign(provider.claims(attacker.nonce))
    assert victim.come_back(state=attacker.query["state"]).status_code == 403
    assert victim.come_back(state="x" * 43).status_code == 403
    assert victim.come_back(state=None).status_code == 403
    assert victim.come_back().status_code == 403, "the nonce is the attacker's"
    assert victim.status() == 401


@pytest.mark.parametrize(
    "changed",
    [{"iss": "https://evil.example"}, {"code": None}, {"code": ""}, {"error": "access_denied"}],
)
def test_an_answer_that_is_none_logs_nobody_in(
    console: ConsoleProcess, provider: HostileProvider, changed: dict[str, str | None]
) -> None:
    """An answer from another issuer, without a code, or with a refusal, is refused, and none of its
    text is on the page.
    """
    attempt = BegunLogin(console.url)
    provider.id_token = provider.sign(provider.claims(attempt.nonce))
    before = len(provider.asked)
    described = {"error_description": "<b>call 555</b>"}
    answer = attempt.come_back(**(changed | described))
    assert answer.status_code == 403
    assert "555" not in answer.text
    assert len(provider.asked) == before, "the provider need not be asked about that"
    assert attempt.status() == 401


def test_a_strangers_words_are_not_in_the_audit(
    console: ConsoleProcess, provider: HostileProvider
) -> None:
    """An error that OAuth does not define is in the audit as one fixed word."""
    attempt = BegunLogin(console.url)
    answer = attempt.come_back(error="call_five_five_five", error_description="now")
    assert answer.status_code == 403
    assert "call_five" not in answer.text + console.log
    refused = console.audit("refused")
    assert "call_five" not in str(refused)
    assert "login_refused_by_provider" in {row["reason"] for row in refused}


def test_strangers_who_come_back_from_nowhere_leave_few_lines_in_the_log(
    console: ConsoleProcess,
) -> None:
    """Answers without a login are logged once for each kind, and then once a minute with a
    count.
    """
    before = console.log.count("login_refused")
    for _ in range(100):
        answer = console.http.get(f"{console.url}/login/callback?state=x", timeout=20)
        assert answer.status_code == 403
    assert console.log.count("login_refused") - before <= 5


def test_logins_that_are_begun_are_one_cookie(
    console: ConsoleProcess, provider: HostileProvider
) -> None:
    """Several tabs that begin a login share one cookie, and each login can be finished."""
    first = BegunLogin(console.url)
    others = []
    for n in range(40):
        other = BegunLogin(console.url, f"/fleet?q={n}", http=first.http)
        others.append(other)
    assert len(first.http.cookies) == 1
    for attempt, place in ((others[7], "/fleet?q=7"), (first, "/fleet?q=a")):
        provider.id_token = provider.sign(provider.claims(attempt.nonce))
        answer = attempt.come_back()
        assert (answer.status_code, answer.headers["location"]) == (303, place)


def test_where_a_login_leads_to_cannot_be_changed_on_the_way(
    console: ConsoleProcess, provider: HostileProvider
) -> None:
    """A changed or foreign state, which has the path after the login, is refused."""
    attempt = BegunLogin(console.url)
    head, _, signature = attempt.query["state"].split(".")
    claims = {"nonce": attempt.nonce, "leads_to": "//evil.example", "exp": 9_999_999_999}
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    unsigned_head = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    for state in (f"{head}.{body}.{signature}", f"{unsigned_head}.{body}.", "x", "", "a.b.c.d"):
        assert attempt.come_back(state=state).status_code == 403
    assert attempt.status() == 401


def test_the_same_answer_twice_makes_one_session(
    console: ConsoleProcess, provider: HostileProvider
) -> None:
    """An answer makes one session even if the provider accepts a code twice and the cookie was
    copied.
    """
    attempt = BegunLogin(console.url)
    cookies = attempt.http.cookies.copy()
    provider.id_token = provider.sign(provider.claims(attempt.nonce))
    assert attempt.come_back().status_code == 303
    attempt.http.cookies = cookies
    again = attempt.come_back()
    assert again.status_code == 403
    assert "has been used already" in again.text
    assert attempt.status() == 401


def test_a_code_that_the_provider_refuses(
    console: ConsoleProcess, provider: HostileProvider
) -> None:
    """The provider refuses a code that was used before, or by another client, and so does the
    console.
    """
    attempt = BegunLogin(console.url)
    provider.token_status = 400
    answer = attempt.come_back()
    assert answer.status_code == 403
    assert "code_refused" in answer.text


def test_a_new_key_is_believed_and_an_old_one_forgotten(
    tmp_path: Path, provider: HostileProvider
) -> None:
    """The keys are read again, at most every five seconds, for an unknown key; removed keys are not
    accepted any more.
    """
    new = ProviderKey("second")

    def come(console: ConsoleProcess, key: ProviderKey) -> int:
        attempt = BegunLogin(console.url)
        provider.id_token = provider.sign(provider.claims(attempt.nonce), key=key)
        return attempt.come_back().status_code

    with console_at(tmp_path / "console", provider.issuer) as console:
        assert come(console, provider.key) == 303
        provider.published = [
            new.public,
            {"kty": "oct", "kid": "x", "k": "AA"},
            {"kid": "second"},
        ]
        eventually(lambda: come(console, new) == 303, what="the new key")
        before, began = len(provider.asked), time.monotonic()
        for _ in range(5):
            assert come(console, ProviderKey("unknown")) == 403
        looks = [path for path, _ in provider.asked[before:]].count("/keys")
        assert looks <= 1 + (time.monotonic() - began) / 5
        assert come(console, provider.key) == 403, "the first key was withdrawn"


def test_groups_from_userinfo_are_about_the_same_person(
    console: ConsoleProcess, provider: HostileProvider
) -> None:
    """Groups from userinfo are used if its subject is that of the ID token."""
    for subject, status in (("eve", 503), ("ann", 303)):
        attempt = BegunLogin(console.url)
        provider.id_token = provider.sign(provider.claims(attempt.nonce, groups=None))
        provider.about = {"sub": subject, "groups": ["ops"], "preferred_username": "root"}
        assert attempt.come_back().status_code == status
        assert attempt.status() == (200 if status == 303 else 401)
    assert {row["actor"] for row in console.audit("logged_in")} == {"ann"}


def test_an_address_that_is_not_verified_is_nobodys_name(
    provider: HostileProvider, tmp_path: Path
) -> None:
    """An e-mail address that the provider marks as not verified, also as text, is not used as a
    name.
    """
    with console_at(tmp_path, provider.issuer, LOGIN__NAME_CLAIM="email") as console:
        for verified, status in ((False, 403), ("false", 403), ("true", 303), (None, 303)):
            attempt = BegunLogin(console.url)
            claims = {"email": "ann@example.com", "email_verified": verified}
            provider.id_token = provider.sign(provider.claims(attempt.nonce, **claims))
            assert attempt.come_back().status_code == status


def test_too_many_groups_are_said_to_be_so(
    console: ConsoleProcess, provider: HostileProvider
) -> None:
    """If Entra ID leaves the groups out because they are too many, the page says so, and the
    address that it names is not requested.
    """
    attempt = BegunLogin(console.url)
    elsewhere = {
        "_claim_names": {"groups": "src1"},
        "_claim_sources": {"src1": {"endpoint": f"{provider.issuer}/graph"}},
    }
    provider.about = {"sub": "ann"}
    provider.id_token = provider.sign(provider.claims(attempt.nonce, groups=None, **elsewhere))
    answer = attempt.come_back()
    assert answer.status_code == 403
    assert "SEB_CONSOLE_LOGIN__GROUPS_CLAIM=roles" in answer.text
    assert "/graph" not in [path for path, _ in provider.asked]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"issuer": "https://evil.example"}, "calls itself by another name"),
        ({"token_endpoint": None}, "token_endpoint is not an address"),
        ({"jwks_uri": "http://169.254.10.20/metadata"}, "jwks_uri is not an address"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "is not an address"),
        ({"token_endpoint": "ftp://127.0.0.1/"}, "is not encrypted"),
        ({"authorization_endpoint": "https://a@evil.example/"}, "is not an address"),
    ],
)
def test_a_provider_that_describes_itself_wrongly(
    tmp_path: Path, provider: HostileProvider, metadata: Json, expected: str
) -> None:
    """A wrong discovery document is answered 503 with the reason; a later try reads it again."""
    provider.metadata = metadata
    with console_at(tmp_path / "console", provider.issuer) as console:
        for _ in range(3):
            answer = console.http.get(f"{console.url}/login", timeout=20, allow_redirects=False)
            assert answer.status_code == 503
            assert expected in answer.text


def test_a_provider_that_is_away_delays_nothing_else(tmp_path: Path) -> None:
    """If the provider does not answer, the login says so, and programs and health requests are
    answered.
    """
    issuer = f"http://127.0.0.1:{free_port()}"
    with console_at(tmp_path / "console", issuer) as console:
        answer = console.http.get(f"{console.url}/login", timeout=20, allow_redirects=False)
        assert answer.status_code == 503
        assert "the login provider does not answer" in answer.text
        checked = console.run("check")
        assert checked.returncode == 69
        assert "fail  login: the login provider does not answer" in checked.stdout
        headers = {"Authorization": f"Bearer {console.token('ci')}"}
        found = console.http.get(f"{console.url}/api/v1/vms", headers=headers, timeout=10)
        assert found.status_code == 200


def test_logins_that_are_begun_leave_nothing(
    console: ConsoleProcess, provider: HostileProvider
) -> None:
    """A flood of begun logins neither fills the database nor sends requests to the provider."""
    before = len(provider.asked)
    for _ in range(50):
        BegunLogin(console.url)
    assert len(provider.asked) <= before + 1
    assert console.audit("begun") == []
