"""The receipt: the data of a record that says what happened to a command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from wire.fields import CLAIM, TEXT, Field, FieldType, list_of, or_null, word_of
from wire.observer import Observer

STATES: Final = ("rejected", "accepted", "posted", "failed", "confirmed")
REFUSALS: Final = (
    "too_large",
    "retained",
    "malformed",
    "unknown_key",
    "bad_signature",
    "wrong_audience",
    "expired",
    "not_yet_valid",
    "lifetime_too_long",
    "not_allowed",
    "replayed",
    "unknown_event",
    "event_changed",
    "already_started",
    "not_approvable",
    "rate_limited",
)
"""The reasons for which a command is rejected before IMDS is asked."""
ACTS: Final = ("approve", "prepare", "ping")
FAILURES: Final = ("not_prepared", "imds_refused", "imds_unreachable")
"""The reasons for which an accepted approval fails, in addition to those in `REFUSALS`."""
_WHY: Final = FieldType(
    {"type": ["string", "null"], "maxLength": 512}, or_null(TEXT).read, is_nullable=True
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptData(Observer):
    """`data` of a receipt."""

    jti: Annotated[
        str, Field(CLAIM, "The command's jti; for a rule or a person, an id that is made for it")
    ]
    evt: Annotated[
        str | None,
        Field(or_null(CLAIM), "EventId that was to be approved; null for a ping"),
    ]
    state: Annotated[
        str,
        Field(
            word_of(*STATES), "rejected, failed and confirmed are final; accepted is, for a ping"
        ),
    ]
    reason: Annotated[
        str | None,
        Field(
            word_of(*REFUSALS, *FAILURES, None),
            "Why, where the state is rejected or failed; else null",
        ),
    ]
    actor: Annotated[str, Field(CLAIM, "A token's sub, rule:<name>, or local:<user>")]
    issuer: Annotated[
        str | None, Field(or_null(TEXT), "The token's iss; null for a rule or a person")
    ]
    resources: Annotated[
        tuple[str, ...], Field(list_of(TEXT), "Every VM that the approval releases")
    ]
    rsn: Annotated[
        str | None,
        Field(
            _WHY,
            "Why, in the approver's own words: the command's rsn, or seb approve --reason; null "
            "where none was given, and for a rule. Receipts of version 0.1.0 have none",
            is_optional=True,
        ),
    ] = None
    act: Annotated[
        str | None,
        Field(
            word_of(*ACTS, None),
            "What was asked for; null where it is not known, as in receipts up to version 0.2.0",
            is_optional=True,
        ),
    ] = None
