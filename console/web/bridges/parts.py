"""The parts of a running console that the requests of bridges use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from console.approvals.service import Decisions
from console.ingest.vm_limits import VmLimits
from console.ingest.vm_secrets import Enrolments
from console.ingest.writer import Writer
from console.web.bridges.held_polls import HeldPolls
from console.web.bridges.poll_times import PollTimes
from console.web.bridges.record_body import RecordBodies


@dataclass(slots=True, kw_only=True)
class BridgeRequestParts:
    """The parts of one run; made once."""

    writer: Writer
    enrolments: Enrolments
    """By which secrets and tokens VMs are recognised."""
    vm_limits: VmLimits
    """The limit of what each VM may send."""
    bodies: RecordBodies
    held_polls: HeldPolls
    poll_times: PollTimes
    decisions: Decisions
    """They have the commands for VMs that poll."""
    is_ready: Callable[[], bool]
    """Whether the database was read once, so that it is known which secrets were revoked."""
    clock: Callable[[], float]
    """Returns seconds since 1970."""
    own_clock: Callable[[], float]
    """This machine's clock, by which the signatures of VMs are judged."""
