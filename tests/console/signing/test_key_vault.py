"""A signing key in Azure Key Vault: what it signs is a command like any other."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from support.console.decision_cases import command
from support.sinks.throwaway_ca import ThrowawayCa

from console.config.key_vault import KeyVaultSettings
from console.config.load import load
from console.signing.key_vault import KeyVaultSigner, _AzureVault
from console.signing.signer import SigningError
from sinks.shared.errors import ConfigurationError

VERSION = "0" * 31 + "1"


def b64(data: bytes) -> str:
    """Return bytes as base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class VaultKey:
    """A private key that only the vault has."""

    def __init__(self) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())

    def sign(self, digest: bytes) -> bytes:
        """Return the signature: r and s."""
        made = self.private.sign(digest, ec.ECDSA(Prehashed(SHA256())))
        r, s = decode_dss_signature(made)
        return r.to_bytes(32) + s.to_bytes(32)

    def coordinates(self) -> tuple[bytes, bytes]:
        """Return x and y of the public key."""
        numbers = self.private.public_key().public_numbers()
        return numbers.x.to_bytes(32), numbers.y.to_bytes(32)


class AwayVault(VaultKey):
    """A vault that does not answer."""

    def sign(self, digest: bytes) -> bytes:
        """Raise, as the vault does not answer."""
        raise TimeoutError("the vault does not answer\nwith its request")


def settings(url: str = "https://seb.vault.azure.net") -> KeyVaultSettings:
    """Return the settings of one key."""
    return KeyVaultSettings(key=f"{url}/keys/console/{VERSION}", issuer="https://console.example")


def check(signer: KeyVaultSigner) -> None:
    """Check that the signed token has the command's claims, and that the shown public key verifies
    it.
    """
    made = command(expires_at=float(int(time.time()) + 8))
    token = signer.sign(made, time.time())
    jwk = signer.public_key()
    claims = jwt.decode(token, jwt.PyJWK(jwk).key, algorithms=["ES256"], audience="urn:seb:vm:vm-1")
    header = jwt.get_unverified_header(token)
    assert header == {"alg": "ES256", "kid": jwk["kid"], "typ": "seb-command+jwt"}
    assert jwk["kid"] == f"console/{VERSION}"
    assert (claims["jti"], claims["sub"], claims["rsn"]) == (made.jti, "ada", "why not")
    assert (claims["iss"], claims["exp"]) == (jwk["iss"], made.expires_at)


def test_what_a_vault_signs_is_a_command() -> None:
    """The vault gets only a digest, and the token is a valid command."""
    key = VaultKey()
    check(KeyVaultSigner(settings(), lambda _: key))


def test_a_vault_that_is_away_signs_nothing() -> None:
    """If the vault does not answer, the error names the setting in one line."""
    signer = KeyVaultSigner(settings(), lambda _: AwayVault())
    made = command(expires_at=float(int(time.time()) + 8))
    with pytest.raises(SigningError, match=r"KEY_VAULT__KEY: the vault does not answer$"):
        signer.sign(made, time.time())
    with pytest.raises(SigningError, match="1 to 900 seconds"):
        signer.sign(command(expires_at=1.0), time.time())


@pytest.mark.parametrize(
    "given",
    [
        {"KEY_VAULT__KEY": f"https://v.example/keys/k/{VERSION}"},
        {"KEY_VAULT__ISSUER": "https://console.example"},
        {"KEY_VAULT__KEY": "http://v.example/keys/k/1", "KEY_VAULT__ISSUER": "x"},
        {"KEY_VAULT__KEY": "https://v.example/keys/k", "KEY_VAULT__ISSUER": "x"},
        {
            "KEY": "console.jwk",
            "KEY_VAULT__KEY": f"https://v.example/keys/k/{VERSION}",
            "KEY_VAULT__ISSUER": "x",
        },
    ],
    ids=["no issuer", "no key", "no TLS", "no version", "two keys"],
)
def test_half_a_vault_is_refused(given: dict[str, str]) -> None:
    """A key without an issuer, without TLS, without a version, or beside a key file is refused."""
    environ = {f"SEB_CONSOLE_{name}": value for name, value in given.items()}
    with pytest.raises(ConfigurationError, match="KEY"):
        load(environ=environ)


class _Answers(BaseHTTPRequestHandler):
    """The two operations of Key Vault's REST API that the console needs, after a challenge."""

    key: VaultKey
    url: str

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def _answer(self, content: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        if status == 401:
            challenge = (
                'Bearer authorization="https://login.example/t", resource="https://v.example"'
            )
            self.send_header("WWW-Authenticate", challenge)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _is_known(self) -> bool:
        if self.headers.get("Authorization") == "Bearer secret":
            return True
        self._answer({"error": {"code": "Unauthorized", "message": "no token"}}, 401)
        return False

    def do_GET(self) -> None:
        """Answer with the public key."""
        if not self._is_known():
            return
        x, y = self.key.coordinates()
        kid = f"{self.url}/keys/console/{VERSION}"
        curve = {"kid": kid, "kty": "EC", "crv": "P-256", "x": b64(x), "y": b64(y)}
        self._answer({"key": curve | {"key_ops": ["sign"]}, "attributes": {"enabled": True}})

    def do_POST(self) -> None:
        """Answer with a signature."""
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))) or "{}")
        if not self._is_known():
            return
        digest = base64.urlsafe_b64decode(request["value"] + "==")
        assert request["alg"] == "ES256"
        assert len(digest) == hashlib.sha256().digest_size
        self._answer({"kid": "console", "value": b64(self.key.sign(digest))})


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A stand-in for Key Vault over TLS: its URL, and the CA to trust."""
    authority = ThrowawayCa(tmp_path / "ca")
    handler = type("Answers", (_Answers,), {"key": VaultKey(), "url": ""})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = authority.server().context.wrap_socket(server.socket, server_side=True)
        handler.url = f"https://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield handler.url, authority.cert  # type: ignore[attr-defined]
        server.shutdown()
        thread.join(10)


class _Credential:
    """Stands in for azure-identity, which would ask the metadata service."""

    def get_token(self, *_: str, **__: Any) -> Any:
        """Return a token, as azure-identity does."""
        from azure.core.credentials import AccessToken  # noqa: PLC0415  # an optional extra

        return AccessToken("secret", int(datetime.now(UTC).timestamp()) + 3600)


def test_the_sdk_signs_with_the_vault(served: tuple[str, Path]) -> None:
    """Azure's own SDK signs over TLS, after its challenge, with a vault on loopback."""
    pytest.importorskip("azure.keyvault.keys")
    url, ca = served
    signer = KeyVaultSigner(
        settings(url),
        lambda key: _AzureVault(
            key,
            _Credential(),
            verify_challenge_resource=False,
            connection_verify=str(ca),
        ),
    )
    check(signer)
