"""What a forger has at hand, and what a forgery is: a command that must not be carried out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from support.commands.control_plane import IssuerKey

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgerTools:
    """What a forger has at hand. `now` is seconds since 1970, as the bridge has it."""

    signer: IssuerKey
    other: IssuerKey
    """Trusted too, as another issuer's."""
    curve: IssuerKey
    """Trusted too, ES256."""
    soon: Record
    """Of an event that names this VM and is Scheduled, in its second revision."""
    before: Record
    """The first record of the same event."""
    elsewhere: Record
    """Of another event that names this VM and is Scheduled."""
    begun: Record
    gone: Record
    others: Record
    """Of an event that names other VMs only."""
    now: int

    def approve(self, **changes: Any) -> bytes:
        return self.about(self.soon, **changes)

    def about(self, record: Record, **changes: Any) -> bytes:
        """An approval of another record."""
        return self.signer.approve(record, now=self.now, **changes)

    def claims(self, **changes: Any) -> dict[str, Any]:
        return self.signer.claims(self.soon, now=self.now, **changes)

    def headed(self, **changes: Any) -> bytes:
        """A good approval with another header, signed as it stands."""
        return self.signer.token(self.claims(), self.signer.header(**changes))

    def text(self, claims: str) -> bytes:
        """Whatever text, well signed."""
        return self.signer.token(claims.encode())

    @property
    def vm_id(self) -> str:
        found: str = self.soon["data"]["vm"]["vmId"]
        return found


Make = Callable[[ForgerTools], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgery:
    """One command that is refused."""

    name: str
    reason: str
    make: Make
    answered: bool = True
    """Whether its signature is good, so that there is somebody to answer."""
    retained: bool = False


def forged(reason: str, made: Mapping[str, Make], *, answered: bool = True) -> Iterator[Forgery]:
    """Forgeries of one reason, by their names."""
    for name, make in made.items():
        yield Forgery(name=name, reason=reason, make=make, answered=answered)


def claiming(changes: Mapping[str, Any]) -> Make:
    """A good approval with other claims."""
    return lambda scene: scene.approve(**changes)
