"""The settings of a signing key that stays in Azure Key Vault."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from sinks.shared.section import Section


class KeyVaultSettings(Section):
    """A key of Azure Key Vault, in place of KEY."""

    key: str | None = Field(
        None,
        pattern=r"^https://[^/\s?#@]+/keys/[A-Za-z0-9-]{1,127}/[0-9a-f]{32}$",
        description="URL of an EC key on P-256 with its version, "
        "https://NAME.vault.azure.net/keys/KEY/VERSION: it signs approvals in place of KEY",
    )
    issuer: str | None = Field(
        None, min_length=1, max_length=200, description="The issuer that the VMs trust it for"
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.key is None) != (self.issuer is None):
            raise ValueError("key and issuer are given together")
        return self
