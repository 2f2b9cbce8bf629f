"""What the stand-in hub can be told to get wrong."""

from dataclasses import dataclass
from enum import StrEnum


class HubFault(StrEnum):
    """What can go wrong at the far end."""

    SILENT = "TCP is accepted, then nothing is ever answered"
    NO_CBS = "the token is never answered"
    CBS_STATUS = "the token is refused with a status"
    NO_ATTACH = "a sender's attach is never answered"
    REFUSE_ATTACH = "a sender's attach is refused: no target, then a detach with a condition"
    DETACH_AT_ONCE = "a sender's link is attached, then detached with a condition"
    NO_MANAGEMENT = "a management request is never answered"
    MANAGEMENT_STATUS = "a management request is refused with a status"
    NO_ACK = "a transfer is swallowed: neither stored nor answered"
    LOST_ACK = "a transfer is stored but not answered"
    REJECT = "a transfer is rejected with a condition"
    RELEASE = "a transfer is released: neither accepted nor rejected"
    DETACH = "a transfer is answered with a detach and its condition"
    CLOSE = "a transfer is answered with a close of the connection and its condition"
    DROP = "a transfer is answered by cutting the TCP connection"


@dataclass
class Armed:
    """A fault that waits for its turn."""

    fault: HubFault
    condition: str
    description: str
    status: int
    skip: int
    left: int | None
