"""The settings of the HTTPS command channel. It opens no connection, and never prints a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from sinks.base import SinkError, SinkSettings, read_secret
from sinks.http.address import checked_address, is_loopback, origin

TOKEN_HINT: Final = "see that SEB_COMMANDS__PULL_TOKEN or its file is what the server asks for"  # noqa: S105
URL_HINT: Final = "see that SEB_COMMANDS__PULL_URL is right"
HINTS: Final = {401: TOKEN_HINT, 403: TOKEN_HINT, 404: URL_HINT, 405: URL_HINT}
"""The remedies by status."""


class PullSettings(SinkSettings):
    """The address of the control plane, and the token for it."""

    url: SecretStr = Field(description="https address of the long poll; its path is kept secret")
    token: SecretStr | None = Field(default=None, description="Bearer token")
    token_file: Path | None = Field(
        default=None, description="File with the bearer token, read again at each request"
    )

    @property
    def address(self) -> str:
        """The address itself, without a slash at its end."""
        return self.url.get_secret_value().rstrip("/")

    @property
    def shown(self) -> str:
        """The address as far as it may be shown: scheme, host and port."""
        return origin(urlsplit(self.address))

    def authorization(self) -> dict[str, str]:
        """Return the Authorization header, if a token is set. Raises `SinkError` if it is not
        valid.
        """
        token = read_secret(self.token, self.token_file)
        if token is None:
            return {}
        if not _is_token(token):
            raise SinkError(
                f"the secret file {self.token_file} holds no bearer token",
                remedy="write one into it, a single word of ASCII",
            )
        return {"Authorization": f"Bearer {token}"}

    @field_validator("url")
    @classmethod
    def _url_is_private(cls, value: SecretStr) -> SecretStr:
        parts = checked_address(value.get_secret_value(), instead="use PULL_TOKEN")
        if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            raise ValueError("this must be https: the bearer token would be read on the way")
        if parts.query or parts.fragment or value.get_secret_value().endswith(("?", "#")):
            raise ValueError("the address ends with its path; vm and wait are added to it")
        return value

    @field_validator("token")
    @classmethod
    def _token_is_a_word(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _is_token(value.get_secret_value()):
            raise ValueError("a bearer token is a single word of ASCII")
        return value

    @field_validator("token_file")
    @classmethod
    def _one_token(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None and info.data.get("token") is not None:
            raise ValueError("give PULL_TOKEN or PULL_TOKEN_FILE, not both")
        return value


def _is_token(text: str) -> bool:
    # RFC 6750, 2.1, but for signs that it leaves out and that harm no header.
    return bool(text) and text.isascii() and text.isprintable() and " " not in text
