"""Checks the fields of the pages' forms, and compares what the person saw. It makes no
decisions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from console.approvals.decision_requests import names_change
from console.fleet.decisions import MAX_REASON_CHARACTERS
from console.fleet.differences import SEEN, seen_of
from console.fleet.event_view import EventItem
from console.web.api.operations import is_storable

_MAX_BYTES: Final = 4 * 1024 * 1024
_MAX_FIELDS: Final = 200
_MAX_NUMBER: Final = 1e12
ACTIONS: Final = ("approve", "leave", "end_turn", "retire")
FORCE: Final = "force"
"""The name of the checkbox, and of the action that an approval becomes with it."""
_NOT_SEEN: Final = {"timeline", "witnesses"}
"""Long parts of an event that a form does not contain."""


class FormError(Exception):
    """The form cannot be used; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenEvent:
    """An event as the person saw it."""

    event_id: str
    scope: str | None
    fingerprint: str
    fields: Mapping[str, Any]
    """The fields that a person sees, as in the API's JSON: `differences.SEEN`."""

    @property
    def event_type(self) -> str | None:
        """The type of the event."""
        found: str | None = self.fields["eventType"]
        return found

    @property
    def names(self) -> Sequence[str]:
        """The names of the VMs that the event lists."""
        found: Sequence[str] = self.fields["resources"]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A decision as a person sent it, on one event or on several."""

    action: str
    reason: str
    seen: tuple[SeenEvent, ...]


def seen_now(event: EventItem) -> dict[str, Any]:
    """Return what the person sees of an event, in the API's JSON, as forms and programs
    compare it.
    """
    return seen_of(event.model_dump(by_alias=True, exclude=_NOT_SEEN))


def written(event: EventItem) -> str:
    """Return what the person sees of an event, as text for the form."""
    return json.dumps(seen_now(event), separators=(",", ":"))


async def read(request: Request) -> Form:
    """Return the form of a POST. Raises `FormError`."""
    fields = parse_fields(await _body(request))
    actions = [value for name, value in fields if name == "action"]
    reasons = [" ".join(value.split()) for name, value in fields if name == "reason"]
    if len(actions) != 1 or actions[0] not in ACTIONS or len(reasons) != 1:
        raise FormError("The form is not complete. Open the page again, and use its buttons.")
    seen = tuple(_seen_event(value) for name, value in fields if name == "seen")
    is_forced = actions[0] == "approve" and (FORCE, "yes") in fields
    return Form(action=FORCE if is_forced else actions[0], reason=reasons[0], seen=seen)


async def read_reason(request: Request) -> str:
    """Return the reason in a form that has nothing else. Raises `FormError`."""
    form = await read(request)
    problem = reason_problem(form.reason)
    if problem is not None:
        raise FormError(problem)
    return form.reason


async def read_conflict(request: Request) -> str:
    """Return the id of the conflict that a person accepts. Raises `FormError`."""
    fields = dict(parse_fields(await _body(request)))
    if not fields.get("conflict"):
        raise FormError("The form is not complete. Open the page again, and use its buttons.")
    return fields["conflict"]


async def read_minutes(request: Request) -> int:
    """Return for how many minutes to assign something, or 0 to release it. Raises `FormError`."""
    fields = dict(parse_fields(await _body(request)))
    if fields.get("minutes") not in ("0", "60"):
        raise FormError("The form is not complete. Open the page again, and use its buttons.")
    return int(fields["minutes"])


def reason_problem(reason: str) -> str | None:
    """Return why a reason is not accepted; None if it is."""
    if not reason:
        return "Give a reason: it is written to the audit and to the VM's log."
    if len(reason) > MAX_REASON_CHARACTERS:
        most = MAX_REASON_CHARACTERS
        return f"The reason has {len(reason)} characters; at most {most} are possible."
    if not reason.isprintable():
        return "The reason has invisible characters. Use letters, digits and punctuation only."
    return None


def change_problem(action: str, reason: str, pattern: str | None) -> str | None:
    """Return why a reason is not enough for an approval; None if it is. It must contain a change
    number that matches the pattern, if there is one.
    """
    if action not in ("approve", FORCE) or names_change(reason, pattern):
        return None
    return f"The reason must hold the number of a change: `{pattern}`."


def parse_fields(body: bytes) -> list[tuple[str, str]]:
    """Return the fields of an urlencoded form, in their order. Raises `FormError`."""
    try:
        return parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=_MAX_FIELDS,
        )
    except ValueError:
        raise FormError(
            "The form cannot be read. Open the page again, and use its buttons."
        ) from None


async def _body(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise FormError("This address takes the form of its page only; programs use the API.")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BYTES:
            raise FormError("The form is too large. Decide fewer events at once.")
    return bytes(body)


def _seen_event(text: str) -> SeenEvent:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(
        isinstance(found.get(name), str) and is_storable(found[name])
        for name in ("eventId", "fingerprint")
    ):
        raise FormError("The form is not complete. Open the page again, and use its buttons.")
    names = found.get("resources")
    scope = found.get("scope")
    kept = {name: _plain(found.get(name)) for name in SEEN if name != "resources"}
    listed = [str(each) for each in names] if isinstance(names, list) else []
    return SeenEvent(
        event_id=found["eventId"],
        scope=scope if isinstance(scope, str) and is_storable(scope) else None,
        fingerprint=found["fingerprint"],
        fields=kept | {"resources": listed},
    )


def _plain(value: object) -> str | int | float | None:
    is_number = isinstance(value, (int, float)) and abs(value) < _MAX_NUMBER
    return value if isinstance(value, str) or is_number else None  # type: ignore[return-value]
