"""The discovery document of an OpenID provider, checked. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

_SCOPES: Final = ("openid", "profile", "email", "groups")


class ProviderError(Exception):
    """The provider did not answer, or its answer is not what OpenID Connect requires; the message
    has no secret.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The addresses and abilities that the provider publishes."""

    authorization: str
    token: str
    keys: str
    userinfo: str | None
    scope: str
    posts_secret: bool
    """Whether the client's secret is sent in the body and not in a header."""
    names_itself: bool
    """Whether its answers to a browser name the issuer (RFC 9207)."""


def metadata_of(found: Mapping[str, Any], issuer: str) -> Metadata:
    """Return the metadata in the discovery document of that issuer. Raises `ProviderError`."""
    if found.get("issuer") != issuer:
        raise ProviderError(
            "the provider calls itself by another name than SEB_CONSOLE_LOGIN__ISSUER; both must "
            f"be equal, and it says {str(found.get('issuer'))[:200]!r}"
        )
    methods = found.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    return Metadata(
        authorization=_endpoint(found, "authorization_endpoint", issuer),
        token=_endpoint(found, "token_endpoint", issuer),
        keys=_endpoint(found, "jwks_uri", issuer),
        userinfo=(
            _endpoint(found, "userinfo_endpoint", issuer) if "userinfo_endpoint" in found else None
        ),
        scope=_scope(found.get("scopes_supported")),
        posts_secret="client_secret_basic" not in methods,
        names_itself=found.get("authorization_response_iss_parameter_supported") is True,
    )


def _endpoint(found: Mapping[str, Any], name: str, issuer: str) -> str:
    """Return an address of the provider; it must be encrypted, unless the issuer itself is not."""
    address = found.get(name)
    if not isinstance(address, str) or not address.isprintable() or " " in address:
        raise ProviderError(f"the provider's {name} is not an address")
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError:
        host = None
    if not host or parts.username is not None or _is_link_local(host):
        raise ProviderError(f"the provider's {name} is not an address")
    if parts.scheme not in ("https", urlsplit(issuer).scheme):
        raise ProviderError(f"the provider's {name} is not encrypted")
    return address


def _is_link_local(host: str) -> bool:
    """Check whether an address is link-local: clouds have their metadata there."""
    try:
        return ip_address(host).is_link_local
    except ValueError:
        return False


def _scope(offered: object) -> str:
    """Return the scopes to ask for: `openid`, and others that this console uses and the provider
    knows.
    """
    known = offered if isinstance(offered, list) else ["profile", "email"]
    return " ".join(each for each in _SCOPES if each == "openid" or each in known)
