"""The OpenID provider: what it publishes, and what a login asks it for. Used on threads of its own.

It sends requests only to the issuer of the settings and to the addresses that this one names.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from console.access.discovery import Metadata, ProviderError, metadata_of
from console.access.id_token import UnknownKeyError, verified
from console.config.login import LoginSettings
from sinks.base import SinkError
from sinks.http.address import origin
from sinks.http.client import Answer, Client, Limits

_LIMITS: Final = Limits(connect=5, read=5, total=10)
_LARGEST: Final = 512 * 1024
_METADATA_SECONDS: Final = 3600.0
_AGAIN_SECONDS: Final = 5.0
"""Between two tries while it does not answer, and between two looks for new keys."""
_WELL_KNOWN: Final = "/.well-known/openid-configuration"
_OK: Final = 200
_FORM: Final = "application/x-www-form-urlencoded"
Json = dict[str, Any]


class RefusedCodeError(ProviderError):
    """The provider does not take this code: it was used before, or is another login's."""


class Provider:
    """One provider; safe for several threads."""

    def __init__(
        self, login: LoginSettings, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._login = login
        self.issuer = login.issuer or ""
        self.client_id = login.client_id or ""
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._metadata: Metadata | None = None
        self._read_at = float("-inf")
        self._failure: tuple[float, str] = float("-inf"), ""
        self._keys: list[Json] = []
        self._keys_at = float("-inf")

    def metadata(self) -> Metadata:
        """What it publishes, at most an hour old. Raises `ProviderError`."""
        with self._lock:
            now = self._monotonic()
            if self._metadata is not None and now - self._read_at < _METADATA_SECONDS:
                return self._metadata
            failed_at, words = self._failure
            if now - failed_at < _AGAIN_SECONDS:  # each try would hold a thread for seconds
                raise ProviderError(words)
            try:
                self._metadata = self._discovered()
            except ProviderError as error:
                self._failure = now, str(error)
                raise
            self._read_at = now
            return self._metadata

    def look(self) -> None:
        """See whether a login could work. Raises `ProviderError`."""
        self.metadata()
        self._secret()
        self._new_keys()

    def tokens(self, code: str, verifier: str, redirect_uri: str) -> Json:
        """What the provider gives for a code. Raises `ProviderError`."""
        metadata = self.metadata()
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        headers = {"Content-Type": _FORM, "Accept": "application/json"}
        secret = self._secret()
        if secret is None or metadata.posts_secret:
            fields["client_id"] = self.client_id
            if secret is not None:
                fields["client_secret"] = secret
        else:
            pair = f"{quote(self.client_id, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        body = urlencode(fields).encode()
        answer = _asked(metadata.token, lambda client: client.ask(body, headers, largest=_LARGEST))
        if answer.status == _OK:
            return _object(answer, "token endpoint")
        error = _error_code(answer)
        if error == "invalid_grant":
            raise RefusedCodeError("the provider refuses the code")
        raise ProviderError(f"the provider's token endpoint answers {answer.status} {error}")

    def claims(self, id_token: object, *, nonce: str, now: float) -> Json:
        """The claims of an ID token; the keys are read again if none fits.

        Raises `IdTokenError`, `ProviderError`.
        """
        for keys in (self._known_keys(), None):
            try:
                return verified(
                    id_token,
                    keys=self._new_keys() if keys is None else keys,
                    issuer=self.issuer,
                    client_id=self.client_id,
                    nonce=nonce,
                    now=now,
                )
            except UnknownKeyError:
                if keys is None:
                    raise
        raise AssertionError

    def userinfo(self, access_token: object, subject: str) -> Json:
        """What the provider says beside the ID token; nothing if it says it elsewhere.

        Raises `ProviderError`.
        """
        address = self.metadata().userinfo
        if address is None or not isinstance(access_token, str) or not access_token.isascii():
            return {}
        headers = {"Authorization": f"Bearer {access_token}", "Accept": "application/json"}
        answer = _asked(address, lambda client: client.get({}, headers, largest=_LARGEST))
        if answer.status != _OK:
            raise ProviderError(f"the provider's userinfo endpoint answers {answer.status}")
        found = _object(answer, "userinfo endpoint")
        if found.get("sub") != subject:
            raise ProviderError("the provider's userinfo is about another person")
        return found

    def _known_keys(self) -> list[Json]:
        with self._lock:
            if self._monotonic() - self._keys_at < _METADATA_SECONDS:
                return self._keys
        return self._new_keys()

    def _new_keys(self) -> list[Json]:
        """The keys that are published now, but not asked for more often than every 5 seconds."""
        address = self.metadata().keys
        with self._lock:
            now = self._monotonic()
            if now - self._keys_at < _AGAIN_SECONDS:
                return self._keys
            answer = _asked(address, lambda client: client.get({}, {}, largest=_LARGEST))
            found = _object(answer, "keys") if answer.status == _OK else {}
            keys = found.get("keys")
            if not isinstance(keys, list):
                raise ProviderError("the provider does not show its keys")
            self._keys = [each for each in keys if isinstance(each, dict)]
            self._keys_at = now
            return self._keys

    def _discovered(self) -> Metadata:
        address = self.issuer.rstrip("/") + _WELL_KNOWN
        answer = _asked(address, lambda client: client.get({}, {}, largest=_LARGEST))
        if answer.status != _OK:
            raise ProviderError(f"{address} answers {answer.status}; see SEB_CONSOLE_LOGIN__ISSUER")
        return metadata_of(_object(answer, _WELL_KNOWN), self.issuer)

    def _secret(self) -> str | None:
        """The client's secret, read at each login so that it can be changed."""
        file = self._login.client_secret_file
        return None if file is None else read_secret(file)


def read_secret(file: Path) -> str:
    """The secret in a file, without the line's end. Raises `ProviderError`."""
    try:
        return file.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise ProviderError(
            f"SEB_CONSOLE_LOGIN__CLIENT_SECRET_FILE: the file cannot be read ({why})"
        ) from None


def _asked(address: str, ask: Callable[[Client], Answer]) -> Answer:
    client: Client | None = None
    try:
        client = Client(address, _LIMITS, shown=origin(urlsplit(address)))
        return ask(client)
    except SinkError as error:
        raise ProviderError(f"the login provider does not answer: {error}") from None
    finally:
        if client is not None:
            client.close()


def _object(answer: Answer, what: str) -> Json:
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ProviderError(f"the provider's answer is not a JSON object ({what})")
    return found


def _error_code(answer: Answer) -> str:
    """OAuth's word for what is wrong, if it is one."""
    try:
        word = json.loads(answer.body).get("error")
    except (ValueError, RecursionError, AttributeError):
        word = None
    good = isinstance(word, str) and len(word) < 50 and word.replace("_", "").isalnum()  # noqa: PLR2004
    return word if good else "an error"
