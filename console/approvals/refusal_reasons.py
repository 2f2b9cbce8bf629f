"""The reasons to refuse a decision: one table with the status, the sentence and the audit
of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from sinks.shared.errors import SebError

RefusalReason = Literal[
    "role",
    "site",
    "second",
    "reason",
    "change",
    "unknown",
    "changed",
    "under_way",
    "no_witness",
    "no_key",
    "unproven",
    "not_approvable",
    "other_groups",
    "not_its_turn",
    "cannot_prepare",
    "turn_begun",
    "not_prepared",
    "no_turn",
    "not_stuck",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """The texts that belong to one `RefusalReason`."""

    status: int
    """The HTTP status of the API's answer."""
    sentence: str
    is_audited: bool = False
    """Whether the transaction writes the refusal to the audit. It does if the request cannot be
    carried out now; what the person's role never allows was audited before.
    """


REASONS: Final[Mapping[RefusalReason, Reason]] = {
    "role": Reason(
        status=403,
        sentence="you may not decide here: this needs the role approver; see SEB_CONSOLE_ROLES",
    ),
    "site": Reason(
        status=403,
        sentence="you may decide for your own site only, and this event names or concerns another",
    ),
    "second": Reason(
        status=403,
        sentence=(
            "a program's token does not count as the second person; let a person approve it too"
        ),
    ),
    "reason": Reason(
        status=422,
        sentence="give a reason: one line of at most 300 characters, without control characters",
    ),
    "change": Reason(
        status=422,
        sentence=(
            "the reason must hold the number of a change; "
            "SEB_CONSOLE_APPROVAL__CHANGE_PATTERN says what it looks like"
        ),
    ),
    "unknown": Reason(
        status=404,
        sentence="the console does not know this event",
    ),
    "changed": Reason(
        status=409,
        is_audited=True,
        sentence="the event is not what you have seen; look at it as it is now",
    ),
    "under_way": Reason(
        status=409,
        is_audited=True,
        sentence="the event is being approved already; nothing more was sent",
    ),
    "no_witness": Reason(
        status=409,
        is_audited=True,
        sentence="no VM that the event names is heard and takes commands; see `seb console vms`",
    ),
    "unproven": Reason(
        status=409,
        is_audited=True,
        sentence=(
            "what is shown is from a bridge of version 0.1.0, and cannot be checked against the "
            "fingerprint; wait for a record of the event, or use `seb approve` on the VM"
        ),
    ),
    "not_approvable": Reason(
        status=409,
        is_audited=True,
        sentence=(
            "Azure's status of this event is not Scheduled: it is news, and there is nothing to "
            "decide"
        ),
    ),
    "other_groups": Reason(
        status=409,
        is_audited=True,
        sentence=(
            "another console was started after this one with other groups; approve it there, start "
            "this one again with the same SEB_CONSOLE_GROUPS, or approve it all the same with force"
        ),
    ),
    "not_its_turn": Reason(
        status=409,
        is_audited=True,
        sentence=(
            "too many VMs of its group are away; wait until they are back, or approve it all the "
            "same with force"
        ),
    ),
    "cannot_prepare": Reason(
        status=409,
        is_audited=True,
        sentence=(
            "the console does not hear a VM that has to prepare for it; wait until it is back, or "
            "approve it all the same with force"
        ),
    ),
    "turn_begun": Reason(
        status=409,
        is_audited=True,
        sentence="its turn has begun; it is approved once its VMs have prepared",
    ),
    "not_prepared": Reason(
        status=409,
        is_audited=True,
        sentence=(
            "a VM did not prepare for it, and Azure starts it at its time; approve it all the same "
            "with force"
        ),
    ),
    "no_turn": Reason(
        status=409,
        sentence="the VMs of this event hold no turn",
    ),
    "not_stuck": Reason(
        status=409,
        sentence="the turn is not stuck; end it all the same with force",
    ),
    "no_key": Reason(
        status=503,
        is_audited=True,
        sentence=(
            "this console cannot approve: set SEB_CONSOLE_KEY to a file that `seb keys generate` "
            "wrote"
        ),
    ),
}


class DecisionRefusedError(SebError):
    """Nothing was decided, and nothing is sent."""

    def __init__(self, reason: RefusalReason, *, jti: str | None = None) -> None:
        super().__init__(REASONS[reason].sentence)
        self.reason = reason
        self.jti = jti
        """The jti of the approval that is under way, if there is one."""
