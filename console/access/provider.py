"""The OpenID provider: what it publishes, and what a login asks of it. Used on its own threads.

Authlib implements OAuth 2.0 and OpenID Connect. It sends requests only to the issuer of the
settings and to the addresses that this issuer publishes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

import requests
from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oidc.discovery import get_well_known_url
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from console import http_client
from console.access.discovery import Metadata, ProviderError, metadata_of
from console.access.id_token import UnknownKeyError, verified
from console.config.login import LoginSettings
from sinks.shared.errors import ConfigurationError
from wire.record import JsonObject

_SECONDS: Final = 10.0
"""The limit for each answer of the provider."""
_MAX_BYTES: Final = 512 * 1024
_METADATA_SECONDS: Final = 3600.0
_RETRY_SECONDS: Final = 5.0
"""The time between two tries while it does not answer, and between two reads of its keys."""
_KEY_TYPES: Final = ("RSA", "EC", "OKP")


class RefusedCodeError(ProviderError):
    """The provider does not accept this code: it was used before, or belongs to another login."""


class Provider:
    """One provider, which redirects people to `redirect_uri`. May be used from several threads."""

    def __init__(
        self,
        login: LoginSettings,
        *,
        redirect_uri: str = "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._login = login
        self._redirect_uri = redirect_uri
        self.issuer = login.issuer or ""
        self._client_id = login.client_id or ""
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._metadata: Metadata | None = None
        self._read_at = float("-inf")
        self._failure: tuple[float, str] = float("-inf"), ""
        self._keys = KeySet([])
        self._keys_at = float("-inf")

    def metadata(self) -> Metadata:
        """Return the provider's metadata, at most an hour old. Raises `ProviderError`."""
        with self._lock:
            now = self._monotonic()
            if self._metadata is not None and now - self._read_at < _METADATA_SECONDS:
                return self._metadata
            failed_at, message = self._failure
            if now - failed_at < _RETRY_SECONDS:  # each try would hold a thread for seconds
                raise ProviderError(message)
            try:
                document = self._get(get_well_known_url(self.issuer, external=True))
                self._metadata = metadata_of(document, self.issuer)
            except ProviderError as error:
                self._failure = now, str(error)
                raise
            self._read_at = now
            return self._metadata

    def check(self) -> None:
        """Check whether a login could work now. Raises `ProviderError`."""
        self.metadata()
        self._secret()
        self._new_keys()

    def address(self, *, state: str, nonce: str, verifier: str) -> str:
        """Return the address at which a browser logs in. Raises `ProviderError`."""
        metadata = self.metadata()
        address, _ = self._client().create_authorization_url(
            metadata.authorization,
            scope=metadata.scope,
            state=state,
            nonce=nonce,
            code_verifier=verifier,
        )
        return str(address)

    def tokens(self, code: str, verifier: str) -> JsonObject:
        """Exchange a code for tokens. Raises `ProviderError`."""
        metadata = self.metadata()
        secret = self._secret()
        try:
            with self._with_deadline(
                self._client(secret, posts_secret=metadata.posts_secret)
            ) as session:
                given: JsonObject = session.fetch_token(
                    metadata.token,
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=verifier,
                    allow_redirects=False,
                )
        except OAuthError as error:
            if error.error == "invalid_grant":
                raise RefusedCodeError("the provider refuses the code") from None
            raise ProviderError("the provider's token endpoint refuses the console") from None
        except requests.RequestException as error:
            raise _no_answer(error) from None
        except ValueError:  # Authlib: the answer is not a JSON object
            raise ProviderError("the provider's token endpoint gives no token") from None
        return given

    def claims(self, id_token: object, *, nonce: str, now: float) -> JsonObject:
        """Return the claims of an ID token; the keys are read again if none fits. Raises
        `IdTokenError`, `ProviderError`.
        """

        def with_keys(keys: KeySet) -> JsonObject:
            return verified(
                id_token,
                keys=keys,
                issuer=self.issuer,
                client_id=self._client_id,
                nonce=nonce,
                now=now,
            )

        try:
            return with_keys(self._known_keys())
        except UnknownKeyError:
            return with_keys(self._new_keys())

    def userinfo(self, access_token: object, subject: str) -> JsonObject:
        """Return what the provider says in addition to the ID token. It is empty if the provider
        has no such address. Raises `ProviderError`.
        """
        address = self.metadata().userinfo
        if address is None or not isinstance(access_token, str) or not access_token.isascii():
            return {}
        found = self._get(address, Authorization=f"Bearer {access_token}")
        if found.get("sub") != subject:
            raise ProviderError("the provider's userinfo is about another person")
        return found

    def _known_keys(self) -> KeySet:
        with self._lock:
            if self._monotonic() - self._keys_at < _METADATA_SECONDS:
                return self._keys
        return self._new_keys()

    def _new_keys(self) -> KeySet:
        """Return the keys that are published now, read at most every 5 seconds."""
        address = self.metadata().keys
        with self._lock:
            now = self._monotonic()
            if now - self._keys_at < _RETRY_SECONDS:
                return self._keys
            self._keys = _public_keys(self._get(address))
            self._keys_at = now
            return self._keys

    def _get(self, address: str, **headers: str) -> JsonObject:
        """Return the JSON object at an address. Raises `ProviderError`."""
        accept = {"Accept": "application/json"}
        try:
            with self._with_deadline(self._client()) as session:
                answer = session.get(
                    address,
                    headers=accept | headers,
                    allow_redirects=False,
                    withhold_token=True,
                )
        except requests.RequestException as error:
            raise _no_answer(error) from None
        if answer.status_code != requests.codes.ok:
            raise ProviderError(
                f"{address} answers {answer.status_code}; see SEB_CONSOLE_LOGIN__ISSUER"
            )
        try:
            found = answer.json()
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ProviderError(f"what {address} answers is not a JSON object")
        return found

    def _client(self, secret: str | None = None, *, posts_secret: bool = False) -> OAuth2Session:
        """Return a client of the provider for one exchange."""
        client_id = self._client_id
        method = "none"
        if secret is not None:
            method = "client_secret_post" if posts_secret else "client_secret_basic"
        if method == "client_secret_basic":
            # RFC 6749, 2.3.1: both are encoded as in a form first. Authlib leaves that out.
            client_id = quote(client_id, safe="")
            secret = quote(secret or "", safe="")
        return OAuth2Session(
            client_id,
            secret,
            token_endpoint_auth_method=method,
            redirect_uri=self._redirect_uri,
            code_challenge_method="S256",
        )

    def _with_deadline(self, client: OAuth2Session) -> OAuth2Session:
        """Return the client with a deadline for its requests. Raises `ProviderError`."""
        try:
            http_client.limit_session(client, self.issuer, seconds=_SECONDS, largest=_MAX_BYTES)
        except ConfigurationError as error:
            raise ProviderError(str(error)) from None
        return client

    def _secret(self) -> str | None:
        """Return the client's secret, read at each login so that it can be changed."""
        file = self._login.client_secret_file
        return None if file is None else read_secret(file)


def read_secret(file: Path) -> str:
    """Return the secret in a file, without the end of its line. Raises `ProviderError`."""
    try:
        return file.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ProviderError(
            f"SEB_CONSOLE_LOGIN__CLIENT_SECRET_FILE: the file cannot be read ({reason})"
        ) from None


def _public_keys(found: JsonObject) -> KeySet:
    """Return the keys of a JWK set that can sign an ID token. Raises `ProviderError`."""
    several = found.get("keys")
    if not isinstance(several, list):
        raise ProviderError("the provider does not show its keys")
    public = [each for each in several if isinstance(each, dict) and each.get("kty") in _KEY_TYPES]
    try:
        return KeySet.import_key_set({"keys": public})
    except (JoseError, ValueError, TypeError):
        raise ProviderError("the provider's keys cannot be read") from None


def _no_answer(error: requests.RequestException) -> ProviderError:
    return ProviderError(f"the login provider does not answer: {http_client.reason_of(error)}")
