"""The settings of a webhook, checked before anything runs. Their errors never show a value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from sinks.base import SinkError, SinkSettings, read_secret
from sinks.http.address import checked_address, origin
from sinks.kinds.webhook.signature import SharedSecret, read_keys
from sinks.shared.proxy import read_proxy

_OURS: Final = ("host", "content-length", "transfer-encoding", "connection")
_OUR_PREFIX: Final = "webhook-"


def _object_from_json(value: object) -> object:
    """Read an object from the JSON text of an environment variable."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError("this is not a JSON object") from None


def _text_from_object(value: object) -> object:
    """Return a template as text, also if the source of settings had read it as JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value


SecretDict = Annotated[dict[str, SecretStr], BeforeValidator(_object_from_json)]
SecretText = Annotated[SecretStr, BeforeValidator(_text_from_object)]


class WebhookSettings(SinkSettings):
    """The address to post to, and the keys for signatures."""

    url: SecretStr = Field(
        description="http or https address; it counts as a secret, because it often contains one"
    )
    secret: SecretStr | None = Field(
        default=None,
        description="Standard Webhooks key (whsec_…); two, separated by a space, while rotating",
    )
    secret_file: Path | None = Field(
        default=None, description="File with the secret, read again at each delivery"
    )
    headers: SecretDict = Field(
        default_factory=dict, description="JSON object of further headers, such as Authorization"
    )
    template: SecretText | None = Field(
        default=None, description="Jinja2 template of the body, or file: and its path"
    )

    proxy: SecretStr | None = Field(
        default=None, description="HTTP proxy as http://HOST:PORT; the system's unless given"
    )

    @property
    def proxy_url(self) -> str | None:
        """The address of the sink's own proxy, with its password."""
        return self.proxy.get_secret_value() if self.proxy is not None else None

    @property
    def target(self) -> SplitResult:
        """The parts of the address."""
        return urlsplit(self.url.get_secret_value())

    @property
    def shown(self) -> str:
        """The address as far as it may be shown: scheme, host and port."""
        return origin(self.target)

    def keys(self) -> tuple[SharedSecret, ...]:
        """Return the signing keys that are valid now; none if no secret is set. Raises `SinkError`
        or `KeyFormatError`.
        """
        secret = read_secret(self.secret, self.secret_file)
        return () if secret is None else read_keys(secret)

    @field_validator("proxy")
    @classmethod
    def _proxy_is_one(cls, proxy: SecretStr | None) -> SecretStr | None:
        if proxy is None:
            return None
        read_proxy(proxy.get_secret_value())
        text = proxy.get_secret_value()
        return proxy if "://" in text else SecretStr(f"http://{text}")

    @field_validator("url")
    @classmethod
    def _url_is_an_address(cls, value: SecretStr) -> SecretStr:
        checked_address(value.get_secret_value(), instead="use headers (Authorization)")
        return value

    @field_validator("headers")
    @classmethod
    def _headers_are_free(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, secret in value.items():
            lowered = name.lower()
            text = secret.get_secret_value()
            if lowered in _OURS or lowered.startswith(_OUR_PREFIX):
                raise ValueError(f"the header {name!r} is set by the bridge itself")
            token = name.replace("-", "").replace("_", "").replace(".", "")
            if not (token.isascii() and token.isalnum()):
                raise ValueError(f"{name!r} is not a header's name")
            if not text.isascii() or not text.isprintable() or text != text.strip():
                raise ValueError(
                    f"the value of the header {name!r} has characters that HTTP forbids"
                )
        return value

    @field_validator("template")
    @classmethod
    def _template_compiles(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            # Jinja2 takes 2 MiB (measured): only a sink with a template should pay for it.
            from sinks.kinds.webhook.template import compile_template  # noqa: PLC0415

            compile_template(value.get_secret_value())
        return value

    @field_validator("secret")
    @classmethod
    def _secret_is_a_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            read_keys(value.get_secret_value())
        return value

    @field_validator("secret_file")
    @classmethod
    def _secret_file_holds_a_key(cls, value: Path | None) -> Path | None:
        try:
            secret = read_secret(None, value)
        except SinkError as error:
            raise ValueError(str(error)) from None
        if secret is not None:
            read_keys(secret)
        return value

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        if self.secret is not None and self.secret_file is not None:
            raise ValueError("set either secret or secret_file, not both")
        return self
