"""Which VMs can be asked to approve an event, and which of them is asked first."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from console.fleet.contact import Listening
from console.fleet.values.event import KnownEvent

PULL: Final = "pull"
"""The name of the HTTPS channel, used in the place of a source's name."""
PULL_SECONDS: Final = 60.0
"""For how long a VM takes commands over HTTPS after it has polled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A VM that can be asked, its channel, and whether a console is connected to that channel."""

    vm_id: str
    channel: str
    gave_up: bool
    """Whether its program could not prepare for the event as it is: it approves nothing."""
    is_connected: bool
    heard_at: float


def channel_of(
    source: str | None, pulled_at: float | None, now: float, listening: Listening
) -> str | None:
    """Return the channel over which a VM takes commands: a connected source, or else HTTPS, or else
    a source that is not connected; None if it takes none. `source` is the source over which the VM
    says that it takes them, `pulled_at` when it last polled.
    """
    pulls = pulled_at is not None and now - pulled_at < PULL_SECONDS
    if source is None or (pulls and not listening.connected.get(source)):
        return PULL if pulls else None
    return source if source in listening.connected else None


def candidates(known: KnownEvent, now: float, listening: Listening) -> list[Candidate]:
    """Return the VMs that can be asked now, the best first: heard, named by the event, and
    reporting it as it is shown. A VM that reports something else would only refuse, and an event
    that does not fit its fingerprint cannot be approved.
    """
    found: dict[str, Candidate] = {}
    report = known.shown.report
    if report.is_news or not report.is_proven:
        return []
    for named in known.named.values():
        channel = channel_of(named.command_source, named.pulled_at, now, listening)
        if (
            channel is None
            or named.contact != "heard"
            or named.content_hash != known.shown.content_hash
        ):
            continue
        found[named.vm_id] = Candidate(
            vm_id=named.vm_id,
            channel=channel,
            gave_up=named.gave_up_on == report.fingerprint,
            is_connected=channel == PULL or listening.connected.get(channel, False),
            heard_at=named.heard_at,
        )
    return sorted(
        found.values(),
        key=lambda each: (each.gave_up, not each.is_connected, -each.heard_at, each.vm_id),
    )


def next_candidate(found: Iterable[Candidate], tried: Collection[str] = ()) -> Candidate | None:
    """Return the best VM that was not tried yet, or None."""
    return next((each for each in found if each.vm_id not in tried), None)
