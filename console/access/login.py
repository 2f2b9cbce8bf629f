"""One login at an OpenID provider: code flow with PKCE, from the first redirect to a session.

A browser keeps one secret in one cookie, however many logins it begins. The data of one login is in
its `state`, signed with that secret, so logins that strangers begin leave nothing at the console.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, TypeVar

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey
from joserfc.jwt import JWTClaimsRegistry

from console.access.discovery import ProviderError
from console.access.id_token import IdTokenError, groups_in, has_too_many_groups
from console.access.people import is_name
from console.access.provider import Provider, RefusedCodeError
from console.config.login import LoginSettings
from wire.record import JsonObject

SECONDS: Final = 600
"""How many seconds a login may take."""
_WORKERS: Final = 4
_WAITING: Final = 32
"""How many requests to the provider may wait: a flood of logins must not delay anything else."""
_MAX_CHARACTERS: Final = 2000
_VERIFIED: Final = (None, True, "true")
"""The values of the claim `email_verified` with which an address counts as verified. Some providers
leave the claim out, and some send a text.
"""
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_REFUSALS: Final = frozenset(
    {
        "access_denied",
        "account_selection_required",
        "consent_required",
        "interaction_required",
        "invalid_request",
        "invalid_scope",
        "login_required",
        "server_error",
        "temporarily_unavailable",
        "unauthorized_client",
        "unsupported_response_type",
    }
)
"""The errors that OAuth 2.0 and OpenID Connect define. Anyone can put other words into the redirect
address, and the audit would then have them.
"""
T = TypeVar("T")


class LoginError(Exception):
    """A login fails. `reason` is for audit and log, the message for the person."""

    def __init__(self, message: str, *, reason: str, status: int = 403) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginStart:
    """A login that begins: the address for the browser, and the secret for its cookie."""

    address: str
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAnswer:
    """The person whom the provider names, the path that the person wanted, and the id of the
    login.
    """

    name: str
    groups: tuple[str, ...]
    leads_to: str
    login: str


class Login:
    """The logins at one provider; used on the event loop."""

    def __init__(
        self,
        settings: LoginSettings,
        *,
        redirect_uri: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._provider = Provider(settings, redirect_uri=redirect_uri)
        self._threads = ThreadPoolExecutor(_WORKERS, thread_name_prefix="login")
        self._waiting = 0

    async def begin(self, secret: str | None, leads_to: str) -> LoginStart:
        """Begin a login that ends at a path; `secret` is the browser's own, if it has one. Raises
        `LoginError` if the provider does not answer.
        """
        if secret is None or _SECRET.fullmatch(secret) is None:
            secret = secrets.token_urlsafe(32)
        nonce = secrets.token_urlsafe(32)
        claims = {
            "nonce": nonce,
            "leads_to": local_path(leads_to),
            "exp": int(self._clock()) + SECONDS,
        }
        state = jwt.encode({"alg": "HS256"}, claims, _key(secret), default_type=None)
        verifier = _verifier(secret, nonce)
        address = await self._ask(
            lambda: self._provider.address(state=state, nonce=nonce, verifier=verifier)
        )
        return LoginStart(address=address, secret=secret)

    async def finish(self, params: Mapping[str, str], secret: str | None) -> ProviderAnswer:
        """Return the person whom the provider names in `params`; `secret` is the cookie's. Raises
        `LoginError`.
        """
        state = self._state(params.get("state", ""), secret)
        if state is None or secret is None:
            raise LoginError(
                "this login was not begun in this browser, or too long ago; log in again",
                reason="wrong_state",
            )
        metadata = await self._ask(self._provider.metadata)
        if params.get("iss", self._provider.issuer) != self._provider.issuer or (
            metadata.names_itself and "iss" not in params
        ):
            raise _not_believed("wrong_issuer")
        if "error" in params:
            word = params["error"] if params["error"] in _REFUSALS else "refused_by_provider"
            raise LoginError(f"the login provider refused: {word}", reason=word)
        code = params.get("code", "")
        if not 0 < len(code) <= _MAX_CHARACTERS:
            raise _not_believed("no_code")
        return await self._ask(lambda: self._person_of(code, secret, state))

    def _state(self, text: str, secret: str | None) -> JsonObject | None:
        """Return the content of a state; None if it was not signed with this secret, or
        is too old.
        """
        if secret is None or _SECRET.fullmatch(secret) is None:
            return None
        try:
            claims = jwt.decode(text, _key(secret), algorithms=["HS256"]).claims
            JWTClaimsRegistry(now=int(self._clock()), exp={"essential": True}).validate(claims)
        except (JoseError, ValueError):
            return None
        return claims

    def _person_of(self, code: str, secret: str, state: JsonObject) -> ProviderAnswer:
        """Exchange the code for tokens, and return who they are about. Runs on a thread."""
        provider = self._provider
        settings = self._settings
        nonce = state["nonce"]
        given = provider.tokens(code, _verifier(secret, nonce))
        claims = provider.claims(given.get("id_token"), nonce=nonce, now=self._clock())
        if groups_in(claims, settings.groups_claim) is None or settings.name_claim not in claims:
            claims = {**provider.userinfo(given.get("access_token"), claims["sub"]), **claims}
        groups = groups_in(claims, settings.groups_claim)
        if groups is None and has_too_many_groups(claims, settings.groups_claim):
            raise LoginError(
                "your account is in more groups than the provider puts into a token; the console's "
                "administrator can use app roles: SEB_CONSOLE_LOGIN__GROUPS_CLAIM=roles",
                reason="too_many_groups",
            )
        return ProviderAnswer(
            name=_name_in(claims, settings.name_claim),
            groups=groups or (),
            leads_to=local_path(state["leads_to"]),
            login=nonce,
        )

    async def _ask(self, work: Callable[[], T]) -> T:
        """Send a request to the provider, on a thread. Raises `LoginError`."""
        if self._waiting >= _WAITING:
            raise LoginError(
                "too many people log in at this moment; try again", reason="busy", status=503
            )
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except IdTokenError as error:
            raise _not_believed(str(error)) from None
        except RefusedCodeError:
            raise _not_believed("code_refused") from None
        except ProviderError as error:
            message = f"logging in does not work now: {error}. Existing sessions stay valid"
            raise LoginError(message, reason="provider_failed", status=503) from None
        finally:
            self._waiting -= 1


def local_path(text: str) -> str:
    """Return the path of the console to which a login leads, or else its first page. Browsers read
    a backslash as a slash, and skip invisible characters.
    """
    fits = text.startswith("/") and not text.startswith("//") and len(text) <= _MAX_CHARACTERS
    plain = all(" " < sign < "\x7f" and sign != "\\" for sign in text)
    return text if fits and plain and not text.startswith("/login") else "/"


def _name_in(claims: Mapping[str, Any], claim: str) -> str:
    """Return the person's name in the claims. Raises `LoginError` if it cannot be a name."""
    name = claims.get(claim, claims["sub"])
    if claim == "email" and claims.get("email_verified") not in _VERIFIED:
        raise _not_believed("email_not_verified")
    if not isinstance(name, str) or not is_name(name):
        raise _not_believed("no_name")
    return name


def _not_believed(reason: str) -> LoginError:
    message = f"the login provider's answer is not accepted ({reason}); log in again"
    return LoginError(message, reason=reason)


def _key(secret: str) -> OctKey:
    return OctKey.import_key(secret)


def _verifier(secret: str, nonce: str) -> str:
    """Return the PKCE verifier of a login: only the browser with the cookie can have it."""
    digest = hmac.digest(secret.encode(), nonce.encode(), sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
