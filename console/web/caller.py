"""Who makes a request that was admitted."""

from __future__ import annotations

from starlette.requests import Request

from console.access.identity import Identity
from console.access.people import Person


def person_of(request: Request) -> Person:
    """Return who makes a request that was admitted."""
    return identity_of(request).person


def identity_of(request: Request) -> Identity:
    """Return who makes a request that was admitted, with the token or session."""
    identity: Identity = request.scope["state"]["identity"]
    return identity
