"""Who speaks to the console, and what they may do: login modes and roles."""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from console.config.settings import ROLES, LoginSettings, Role

_LONGEST: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody who is logged in; `name` stands in audit and tokens."""

    name: str
    roles: frozenset[Role]


def local_person() -> Person:
    """Everybody, if there is no login: the console listens on loopback only."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = "unknown"
    return Person(name=f"local:{user}", roles=frozenset(ROLES))


def proxied_person(
    login: LoginSettings,
    roles: Mapping[Role, Iterable[str]],
    *,
    peer: str,
    headers: Mapping[str, str],
) -> Person | None:
    """Who a trusted proxy says that it is; None if nobody, or the peer is not such a proxy.

    `peer` is the connection's own address, never one that a header names.
    """
    if not any(_same(peer, each) for each in login.proxies):
        return None
    name = headers.get(login.user_header.lower(), "").strip()
    if not name or len(name) > _LONGEST or not name.isprintable():
        return None
    told = headers.get(login.groups_header.lower(), "")
    groups = [group.strip() for group in told.split(",") if group.strip()]
    return Person(name=name, roles=roles_of(roles, user=name, groups=groups))


def roles_of(
    roles: Mapping[Role, Iterable[str]], *, user: str, groups: Iterable[str]
) -> frozenset[Role]:
    """The roles that the settings give to a user and to groups."""
    names = {f"user:{user}", *(f"group:{group}" for group in groups)}
    return frozenset(role for role, named in roles.items() if names & set(named))


def _same(peer: str, proxy: str) -> bool:
    try:
        one, other = ip_address(peer), ip_address(proxy)
    except ValueError:
        return False
    # A socket that listens on IPv6 names an IPv4 peer as ::ffff:10.0.0.7.
    mapped = getattr(one, "ipv4_mapped", None)
    return other in (one, mapped)
