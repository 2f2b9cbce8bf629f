"""Why a decision is not taken: one word, and a sentence that says what to do."""

from __future__ import annotations

from typing import Final, Literal

from console.errors import ConsoleError

Why = Literal[
    "role",
    "site",
    "second",
    "reason",
    "unknown",
    "changed",
    "under_way",
    "no_witness",
    "no_key",
    "unproven",
    "not_approvable",
    "not_its_turn",
    "cannot_prepare",
    "turn_begun",
    "not_prepared",
    "no_turn",
    "not_stuck",
]
WORDS: Final[dict[Why, str]] = {
    "role": "you may not decide here: this needs the role approver; see SEB_CONSOLE_ROLES",
    "site": "you may decide for your own site only, and this event names or concerns another",
    "second": "a program's token does not count as the second person; let a person approve it too",
    "reason": "give a reason: one line of at most 300 characters, without control characters",
    "unknown": "the console does not know this event",
    "changed": "the event is not what you have seen; look at it as it is now",
    "under_way": "the event is being approved already; nothing more was sent",
    "no_witness": "no VM that the event names is heard and takes commands; see `seb console vms`",
    "unproven": "what is shown is from a bridge of version 0.1.0, and cannot be checked against "
    "the fingerprint; wait for a record of the event, or use `seb approve` on the VM",
    "not_approvable": "Azure's status of this event is not Scheduled: it is news, and there is "
    "nothing to decide",
    "not_its_turn": "too many VMs of its group are away; wait until they are back, or approve it "
    "all the same with force",
    "cannot_prepare": "the console does not hear a VM that has to prepare for it; wait until it is "
    "back, or approve it all the same with force",
    "turn_begun": "its turn has begun; it is approved once its VMs have prepared",
    "not_prepared": "a VM did not prepare for it, and Azure starts it at its time; approve it all "
    "the same with force",
    "no_turn": "the VMs of this event hold no turn",
    "not_stuck": "the turn is not stuck; end it all the same with force",
    "no_key": "this console cannot approve: set SEB_CONSOLE_KEY to a file that `seb keys generate` "
    "wrote",
}


class DecisionRefused(ConsoleError):
    """Nothing was decided, and nothing is sent."""

    def __init__(self, why: Why, *, jti: str | None = None) -> None:
        super().__init__(WORDS[why])
        self.why = why
        self.jti = jti
        """Of the approval that is under way, if there is one."""
