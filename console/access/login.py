"""One login at an OpenID provider: code flow with PKCE, from the first redirect to a session.

A login under way is known to the browser alone, in a cookie: state, nonce and PKCE's verifier are
derived from its secret, so that strangers who begin thousands of logins leave nothing behind.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import re
import secrets
import string
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from console.access.discovery import ProviderError
from console.access.id_token import IdTokenError, groups_in, has_too_many_groups
from console.access.people import is_name
from console.access.provider import Provider, RefusedCodeError
from console.config.login import LoginSettings

SECONDS: Final = 600
"""How long a login may take."""
_WORKERS: Final = 4
_WAITING: Final = 32
"""Requests to the provider that may wait; a flood of logins must not hold up anything else."""
_WORD: Final = re.compile(r"[a-z_]{1,50}")
_LONGEST: Final = 2000
_VERIFIED: Final = (None, True, "true")
"""Some providers say nothing about addresses, and some say it as a text."""
_SIGNS: Final = frozenset(string.ascii_letters + string.digits + "-_")
T = TypeVar("T")
Json = dict[str, Any]


class LoginError(Exception):
    """A login ends here. `reason` is for audit and log, the message for the person."""

    def __init__(self, words: str, *, reason: str, status: int = 403) -> None:
        super().__init__(words)
        self.reason = reason
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A login under way: where the browser goes, and the cookie that it keeps."""

    address: str
    tag: str
    """Part of the cookie's name, so that two logins of one browser do not disturb each other."""
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Who the provider says that it is."""

    name: str
    groups: tuple[str, ...]


class Login:
    """The logins of one provider; on the event loop."""

    def __init__(
        self,
        settings: LoginSettings,
        *,
        redirect_uri: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._redirect_uri = redirect_uri
        self._clock = clock
        self._provider = Provider(settings)
        self._threads = ThreadPoolExecutor(_WORKERS, thread_name_prefix="login")
        self._waiting = 0

    async def begin(self) -> Begun:
        """Start a login. Raises `LoginError` if the provider is away."""
        metadata = await self._asked(self._provider.metadata)
        secret = f"{int(self._clock())}-{secrets.token_urlsafe(32)}"
        state = _derived(secret, "state")
        challenge = sha256(_derived(secret, "verifier").encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self._provider.client_id,
            "redirect_uri": self._redirect_uri,
            "scope": metadata.scope,
            "state": state,
            "nonce": _derived(secret, "nonce"),
            "code_challenge": base64.urlsafe_b64encode(challenge).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        sign = "&" if "?" in metadata.authorization else "?"
        address = f"{metadata.authorization}{sign}{urlencode(query)}"
        return Begun(address=address, tag=tag_of(state), secret=secret)

    async def finish(self, params: Mapping[str, str], secret: str | None) -> Found:
        """Who came back from the provider with `params`; `secret` is the cookie's.

        Raises `LoginError`.
        """
        state = params.get("state", "")
        if secret is None or not self._is_mine(secret, state):
            raise LoginError(
                "this login was not begun in this browser, or too long ago; log in again",
                reason="wrong_state",
            )
        metadata = await self._asked(self._provider.metadata)
        if params.get("iss", self._provider.issuer) != self._provider.issuer or (
            metadata.names_itself and "iss" not in params
        ):
            raise _not_believed("wrong_issuer")
        if "error" in params:
            word = params["error"] if _WORD.fullmatch(params["error"]) else "error"
            raise LoginError(f"the login provider refused: {word}", reason=word)
        code = params.get("code", "")
        if not 0 < len(code) <= _LONGEST:
            raise _not_believed("no_code")
        return await self._asked(lambda: self._found(code, secret))

    def _is_mine(self, secret: str, state: str) -> bool:
        """Whether the state is this secret's, and the secret is not too old."""
        made_at = secret.partition("-")[0]
        fresh = made_at.isdecimal() and self._clock() - int(made_at[:12]) < SECONDS
        return fresh and _equal(state, _derived(secret, "state"))

    def _found(self, code: str, secret: str) -> Found:
        """On a thread: the code's tokens, and who they are about."""
        provider, settings = self._provider, self._settings
        given = provider.tokens(code, _derived(secret, "verifier"), self._redirect_uri)
        nonce = _derived(secret, "nonce")
        claims = provider.claims(given.get("id_token"), nonce=nonce, now=self._clock())
        if groups_in(claims, settings.groups_claim) is None or settings.name_claim not in claims:
            claims = provider.userinfo(given.get("access_token"), claims["sub"]) | claims
        groups = groups_in(claims, settings.groups_claim)
        if groups is None and has_too_many_groups(claims, settings.groups_claim):
            raise LoginError(
                "your account is in more groups than the provider puts into a token; the console's "
                "administrator can use app roles: SEB_CONSOLE_LOGIN__GROUPS_CLAIM=roles",
                reason="too_many_groups",
            )
        return Found(name=_name_in(claims, settings.name_claim), groups=groups or ())

    async def _asked(self, work: Callable[[], T]) -> T:
        """Ask the provider, on a thread. Raises `LoginError`."""
        if self._waiting >= _WAITING:
            raise LoginError(
                "too many people log in at this moment; try again", reason="busy", status=503
            )
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except IdTokenError as error:
            raise _not_believed(str(error).replace(" ", "_")) from None
        except RefusedCodeError:
            raise _not_believed("code_refused") from None
        except ProviderError as error:
            words = f"logging in does not work now: {error}. Sessions that exist go on"
            raise LoginError(words, reason="provider_failed", status=503) from None
        finally:
            self._waiting -= 1


def tag_of(state: str) -> str:
    """The part of a login's cookie's name that its state tells."""
    return "".join(sign for sign in state[:8] if sign in _SIGNS)


def local_path(text: str) -> str:
    """Where a login leads to: a path of the console, or else its first page.

    Browsers read a backslash as a slash, and leave out signs that cannot be seen.
    """
    fits = text.startswith("/") and not text.startswith("//") and len(text) <= _LONGEST
    plain = all(" " < sign < "\x7f" and sign != "\\" for sign in text)
    return text if fits and plain and not text.startswith("/login") else "/"


def _name_in(claims: Mapping[str, Any], claim: str) -> str:
    """The person's name. Raises `LoginError` if it cannot be one."""
    name = claims.get(claim, claims["sub"])
    if claim == "email" and claims.get("email_verified") not in _VERIFIED:
        raise _not_believed("email_not_verified")
    if not isinstance(name, str) or not is_name(name):
        raise _not_believed("no_name")
    return name


def _not_believed(reason: str) -> LoginError:
    words = f"the login provider's answer is not accepted ({reason}); log in again"
    return LoginError(words, reason=reason)


def _derived(secret: str, purpose: str) -> str:
    """43 signs, which only the browser with the cookie can know."""
    digest = hmac.digest(secret.encode(), f"seb-console/login/{purpose}".encode(), sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())
