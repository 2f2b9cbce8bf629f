"""The signer that the settings name."""

from __future__ import annotations

from console.config.settings import ConsoleSettings
from console.signing.key_file import KeyFileSigner
from console.signing.key_vault import KeyVaultSigner
from console.signing.signer import Signer


def configured_signer(settings: ConsoleSettings) -> Signer | None:
    """Return the signer that the settings name, or None: then nothing can be approved. Raises
    `ConfigurationError` if its key cannot be used.
    """
    if settings.key_vault.key is not None:
        return KeyVaultSigner(settings.key_vault)
    return None if settings.key is None else KeyFileSigner(settings.key)
