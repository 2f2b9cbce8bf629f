"""Sentences for the ends of commands and decisions: the reason, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

FINAL: Final = ("confirmed", "failed", "rejected", "unanswered")
"""The last states of a command."""
BY_CONSOLE: Final = ("changed", "decided", "token_ended")
"""The reasons for which the console itself gave up an approval: no VM acts on it."""

_OVER: Final = "There is nothing to do."
_AGAIN: Final = "Look at the event as it is now, and decide again if that is still right."
_TRUST: Final = "Compare SEB_APPROVAL__TRUST on the VM with `seb console trust`."
_CLOCK: Final = "Compare the VM's clock with the console's, then approve again."
_REPORT: Final = "Compare the versions of bridge and console, and upgrade the older one."
_LOGS: Final = (
    "Check that their bridges run and trust the console's key: `command_refused` in a VM's log "
    "names the fault. Then approve again, or run `seb approve` on a VM."
)
# The reasons of a bridge (docs/control-plane.md), then those of the console: why, and what to do.
_REASONS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "too_large": ("The command is larger than the bridge takes.", "Give a shorter reason."),
        "retained": (
            "The broker had kept the command, and a bridge takes new ones only.",
            "Check who else may write to the VM's command topic, then approve again.",
        ),
        "malformed": ("The VM cannot read the command.", _REPORT),
        "unknown_key": ("The VM does not know the key that signed the command.", _TRUST),
        "bad_signature": (
            "The VM has another key under the id of the one that signed the command.",
            _TRUST,
        ),
        "wrong_audience": (
            "The VM says that the command is for another VM.",
            "Check that no other VM was made from its disk.",
        ),
        "expired": ("The command came too late.", _CLOCK),
        "not_yet_valid": ("The VM's clock is behind the console's.", _CLOCK),
        "lifetime_too_long": ("The VM found the command's life too long.", _CLOCK),
        "not_allowed": (
            "The VM does not take this command: the key's issuer, or its settings, forbid it.",
            _TRUST,
        ),
        "replayed": (
            "The VM has had this command before, and cannot say what became of it.",
            "See `seb events` on the VM, then approve again.",
        ),
        "unknown_event": ("The VM does not have this event any more.", _AGAIN),
        "event_changed": (
            "The VM has another state of the event than the console showed.",
            _AGAIN,
        ),
        "already_started": ("The event had started before the command came.", _OVER),
        "not_approvable": (
            "The VM cannot approve this event: it is only information, or IMDS names it twice.",
            "Look at the event on its page.",
        ),
        "rate_limited": (
            "The VM was sent too many commands in a minute.",
            "Approve again in a minute.",
        ),
        "imds_refused": (
            "Azure's metadata service refused the approval.",
            "See `journalctl -u seb` on the VM. The event starts at its time.",
        ),
        "imds_unreachable": (
            "The VM got no answer from Azure's metadata service before the event began or changed.",
            "Azure may start it. Run `seb check` on the VM.",
        ),
        "no_answer": (
            "The VMs that were asked did not answer.",
            _LOGS,
        ),
        "no_end": (
            "The VM accepted the command, and has not reported its end.",
            "See `seb events` on the VM.",
        ),
        "not_sent": (
            "The command could not be sent.",
            "Check the console's sources, then approve again.",
        ),
        "started": ("The event started before a VM had answered.", _OVER),
        "ended": ("The event ended before a VM had answered.", _OVER),
        "changed": ("The event changed before it was carried out.", _AGAIN),
        "decided": ("Another decision took its place.", _OVER),
        "token_ended": (
            "The token in whose name it was made was revoked, has expired, or may not approve.",
            _AGAIN,
        ),
    }
)
_OUTCOMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "confirmed": "The event was approved, and has started.",
        "left": "The event was left until its time.",
        "failed": "The approval failed.",
        "rejected": "The VM rejected the command.",
        "unanswered": "The VM did not answer.",
        "overtaken": "The decision was overtaken.",
    }
)


def reason_text(reason: str | None) -> str | None:
    """Return the sentence for a reason; an unknown reason is returned unchanged."""
    if not reason:
        return None
    return _REASONS[reason][0] if reason in _REASONS else reason


def ending(state: str, reason: str | None) -> tuple[str, str] | None:
    """Return the reason for which a command ended without success, and what to do; None if it
    succeeded or is under way.
    """
    if state not in FINAL or state == "confirmed":
        return None
    if state == "unanswered":
        return _REASONS["no_answer"]
    return _REASONS.get(
        reason or "",
        (reason or _OUTCOMES[state], "The VM's log says why: `journalctl -u seb` on it."),
    )


def outcome_text(outcome: str, reason: str | None) -> str:
    """Return what the outcome of a decision means and what to do. `reason` is a word, from a
    receipt or the console. If a rule or a person overtook the decision, it is that actor, such as
    `rule:NAME` or `local:USER`.
    """
    start = _OUTCOMES.get(outcome, outcome)
    if outcome in ("confirmed", "left") or reason is None:
        return start
    if reason in _REASONS:
        # The sentence of the reason says already that no VM answered.
        return " ".join(_REASONS[reason] if outcome == "unanswered" else (start, *_REASONS[reason]))
    detail = f"The event was approved by {reason}." if outcome == "overtaken" else reason
    return f"{start} {detail}"
