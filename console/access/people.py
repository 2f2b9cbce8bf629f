"""People and their roles."""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from starlette.datastructures import Headers

from console.config.login import LoginSettings
from console.config.settings import ROLES, Role

_MAX_CHARACTERS: Final = 200
_NOT_PEOPLE: Final = ("local:", "rule:", "token:", "group:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person or a program that is logged in; `name` is the one in the audit and in command
    tokens.
    """

    name: str
    roles: frozenset[Role]
    site: str | None = None
    """The only site whose VMs and events it sees and decides about; None: every site."""
    is_token: bool = False
    """Whether it is a program with a bearer token; it never counts as a second person."""


def local_person() -> Person:
    """Return the person for every request without a login: the console then listens only on
    loopback.
    """
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
    headers: Headers,
) -> Person | None:
    """Return the person that a trusted proxy names; None if it names none, or if the peer is not
    such a proxy.

    `peer` is the connection's own address, never one from a header. A header that occurs twice may
    be the client's own beside the proxy's, so neither is believed.
    """
    if not any(_same(peer, each) for each in login.proxies):
        return None
    names = headers.getlist(login.user_header)
    groups_given = headers.getlist(login.groups_header)
    if len(names) != 1 or len(groups_given) > 1:
        return None
    name = _text(names[0])
    if not is_name(name):
        return None
    groups = [group.strip() for group in _text("".join(groups_given)).split(",") if group.strip()]
    return Person(name=name, roles=roles_of(roles, user=name, groups=groups))


def is_name(name: str) -> bool:
    """Check whether a provider's name can be a person's: it is short, printable, and not in the
    form of other actors.
    """
    fits = 0 < len(name) <= _MAX_CHARACTERS and name.isprintable()
    return fits and not name.lower().startswith(_NOT_PEOPLE)


def roles_of(
    roles: Mapping[Role, Iterable[str]], *, user: str, groups: Iterable[str]
) -> frozenset[Role]:
    """Return the roles that the settings give to a user and to groups."""
    names = {f"user:{user}", *(f"group:{group}" for group in groups)}
    return frozenset(role for role, named in roles.items() if names & set(named))


def _text(value: str) -> str:
    """Return a header's text: proxies send UTF-8, but HTTP reads every byte as a character."""
    return value.encode("latin-1").decode("utf-8", "replace").strip()


def _same(peer: str, proxy: str) -> bool:
    try:
        one = ip_address(peer)
        other = ip_address(proxy)
    except ValueError:
        return False
    # A socket that listens on IPv6 names an IPv4 peer as ::ffff:10.0.0.7.
    mapped = getattr(one, "ipv4_mapped", None)
    return other in (one, mapped)
