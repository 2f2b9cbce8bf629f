"""Signs with a key that never leaves Azure Key Vault: ES256, by the Azure SDK, which is
an extra.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any, Final, Protocol

from console.config.key_vault import KeyVaultSettings
from console.fleet.values.decision import VmCommand
from console.signing.signer import SigningError, moment_of, wire_command
from sinks.shared.errors import ConfigurationError
from wire.command import signing_input
from wire.keys import SigningKey

_ALGORITHM: Final = "ES256"
_REMEDY: Final = "run pip install 'scheduled-events-bridge[azure-keyvault]'"


class Vault(Protocol):
    """One key of a Key Vault."""

    def sign(self, digest: bytes) -> bytes:
        """Return the signature of a SHA-256 digest: r and s, 32 bytes each."""

    def coordinates(self) -> tuple[bytes, bytes]:
        """Return x and y of the public key on P-256."""


class KeyVaultSigner:
    """Signs with a key of Azure Key Vault. The console's identity needs only the right to sign with
    it.
    """

    def __init__(
        self, settings: KeyVaultSettings, open_vault: Callable[[str], Vault] | None = None
    ) -> None:
        """Raises `ConfigurationError` if the SDK is not installed."""
        self._url = str(settings.key)
        self._issuer = str(settings.issuer)
        self._vault = (open_vault or _open)(self._url)
        self._kid = "/".join(self._url.rsplit("/", maxsplit=2)[1:])
        """Name and version of the key."""

    def sign(self, command: VmCommand, now: float) -> bytes:
        """See `Signer`."""
        lifetime = int(command.expires_at) - int(now)
        try:
            unsigned = signing_input(
                wire_command(command),
                SigningKey(kid=self._kid, alg=_ALGORITHM, issuer=self._issuer, key=None),
                vm_id=command.vm_id,
                now=moment_of(now),
                lifetime=lifetime,
            )
            signature = self._vault.sign(hashlib.sha256(unsigned).digest())
        except Exception as error:  # noqa: BLE001  # the SDK's own are many; what is not signed waits
            raise SigningError(f"SEB_CONSOLE_KEY_VAULT__KEY: {_words(error)}") from None
        return unsigned + b"." + _b64(signature).encode()

    def public_key(self) -> dict[str, Any]:
        """See `Signer`; needs the right to read the key."""
        try:
            x, y = self._vault.coordinates()
        except Exception as error:  # noqa: BLE001  # as above
            raise SigningError(f"SEB_CONSOLE_KEY_VAULT__KEY: {_words(error)}") from None
        curve = {"kty": "EC", "crv": "P-256", "x": _b64(x), "y": _b64(y)}
        return curve | {"kid": self._kid, "alg": _ALGORITHM, "use": "sig", "iss": self._issuer}


class _AzureVault:
    """The clients of the Azure SDK, with the identity that azure-identity finds."""

    def __init__(self, url: str, credential: Any, **options: Any) -> None:
        try:
            from azure.keyvault.keys import KeyClient  # noqa: PLC0415  # an optional extra
            from azure.keyvault.keys.crypto import (  # noqa: PLC0415  # as above
                CryptographyClient,
                SignatureAlgorithm,
            )
        except ImportError:
            message = f"SEB_CONSOLE_KEY_VAULT__KEY: azure-keyvault-keys is missing; {_REMEDY}"
            raise ConfigurationError(message) from None
        vault, _, name, version = url.rsplit("/", maxsplit=3)
        self._name = name
        self._version = version
        self._keys = KeyClient(vault, credential, **options)
        self._key = CryptographyClient(url, credential, **options)
        self._es256 = SignatureAlgorithm.es256

    def sign(self, digest: bytes) -> bytes:
        signature: bytes = self._key.sign(self._es256, digest).signature
        return signature

    def coordinates(self) -> tuple[bytes, bytes]:
        found: Any = self._keys.get_key(self._name, self._version).key
        if found.crv != "P-256":
            raise ValueError(f"the key is on {found.crv or found.kty}, and not on P-256")
        return found.x, found.y


def _open(url: str) -> Vault:
    try:
        from azure.identity import DefaultAzureCredential  # noqa: PLC0415  # an optional extra
    except ImportError:
        message = f"SEB_CONSOLE_KEY_VAULT__KEY: azure-identity is missing; {_REMEDY}"
        raise ConfigurationError(message) from None
    return _AzureVault(url, DefaultAzureCredential())


def _words(error: Exception) -> str:
    """Return the first line of the SDK's message, without the request that follows it."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
