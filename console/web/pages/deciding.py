"""Turns a form into a decision, and the result into the words of the page."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from console.access.people import Person
from console.approvals.refused import REASONS, DecisionRefusedError
from console.db.errors import StoreError
from console.web.pages.decide import CHANGED, Decide, Outcome
from console.web.pages.forms import SeenEvent
from console.web.state import AppState

_DONE: Final[Mapping[str, Outcome]] = {
    "approving": Outcome(kind="sent", words="Approved: a VM is being asked."),
    "approved": Outcome(kind="sent", words="Approved."),
    "second": Outcome(kind="second", words="Your approval is noted. A second person is needed."),
    "left": Outcome(kind="left", words="Left until its time."),
}
_ALREADY: Final = "It is being approved already. Nothing more is sent."


def deciding(state: AppState) -> Decide:
    """Return a function that carries out decisions in this console."""

    async def decide(person: Person, action: str, seen: SeenEvent, reason: str) -> Outcome:
        decisions = state.decisions
        carry_out: Any = decisions.approve
        if action == "force":
            carry_out = partial(decisions.approve, force=True)
        elif action == "leave":
            carry_out = decisions.leave
        try:
            if action == "end_turn":
                await decisions.end_turn(person, seen.event_id, reason, scope=seen.scope)
                return Outcome(kind="sent", words="Its turn has ended.")
            made = await carry_out(
                person, seen.event_id, seen.fingerprint, reason, scope=seen.scope
            )
        except DecisionRefusedError as refused:
            return _refused(refused)
        except StoreError as error:
            words = f"Nothing is signed, because the audit cannot be written: {error}"
            return Outcome(kind="refused", words=words, status=503)
        return _DONE[made.state]

    return decide


def _refused(refused: DecisionRefusedError) -> Outcome:
    if refused.why == "changed":
        return Outcome(kind="changed", words=CHANGED)
    if refused.why == "under_way":
        return Outcome(kind="already", words=_ALREADY)
    words = str(refused)
    return Outcome(
        kind="refused", words=f"{words[:1].upper()}{words[1:]}.", status=REASONS[refused.why].status
    )
