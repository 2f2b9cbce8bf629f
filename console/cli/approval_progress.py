"""Shows the steps of an approval until it ends."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import click

from console.cli.client import ConsoleClient, event_path
from console.fleet import outcomes
from sinks.shared.errors import NO, NO_REPLY, NOT_PERMITTED, OK, UnreachableError
from sinks.shared.text import plain

_REPOLL_SECONDS: Final = 0.3
UNDER_WAY: Final = "the approval is under way; the console follows it, and so does the event's page"
PREPARING: Final = "its VMs prepare first; the console approves it after that"
NOT_PREPARED: Final = "it is not prepared any more; look at the event as it is now"
SECOND: Final = (
    "this event needs a second person: another approver has to approve it too; nothing is sent yet"
)


class ApprovalProgress:
    """The steps of one decision; each is printed once, on standard output."""

    def __init__(self, client: ConsoleClient, event_id: str, *, as_json: bool) -> None:
        self._client = client
        self._event_id = event_id
        self._as_json = as_json
        self._shown: set[tuple[str, str]] = set()

    def follow(self, answer: Mapping[str, Any], *, seconds: float) -> int:
        """Return the exit code of an approval after the `answer` to its POST; `seconds` is how long
        to wait for its end, 0 for not at all.
        """
        jti = answer.get("jti")
        end = time.monotonic() + seconds
        if jti is None and answer.get("state") == "approving":
            self._show({"jti": None, "state": "preparing", "reason": None})
            while jti is None and time.monotonic() < end:
                threading.Event().wait(_REPOLL_SECONDS)
                code, jti = self._follow_preparation()
                if code is not None:
                    return code
            if jti is None:
                click.echo(f"seb console: {PREPARING}", err=True)
                return NO_REPLY if seconds else OK
        if jti is None:
            self._show({"jti": None, "state": answer.get("state"), "reason": None})
            click.echo(f"seb console: {SECOND}", err=True)
            return NO_REPLY
        if not seconds:
            self._show({"jti": jti, "state": answer["state"], "reason": None})
            return OK
        while True:
            code, jti = self._poll(str(jti))
            if code is not None:
                return code
            if time.monotonic() >= end:
                click.echo(f"seb console: {UNDER_WAY}", err=True)
                return NO_REPLY
            threading.Event().wait(_REPOLL_SECONDS)

    def _follow_preparation(self) -> tuple[int | None, str | None]:
        """Return the exit code if its VMs did not prepare, and the jti of the command that approves
        the event once they did.
        """
        try:
            event = self._client.get(event_path(self._event_id))
        except UnreachableError:
            return None, None
        sent = [each for each in event["timeline"] if each["kind"] == "command"]
        approvals = [each["jti"] for each in sent if each["act"] == "approve"]
        if approvals:
            return None, str(approvals[-1])
        if event["turn"]["state"] in ("preparing", "prepared"):
            return None, None
        click.echo(f"seb console: {plain(event['turn']['reason'] or NOT_PREPARED)}", err=True)
        return NO, None

    def _poll(self, jti: str) -> tuple[int | None, str]:
        """Print the new steps; return the exit code if the last one is the end, and the jti to look
        at next.
        """
        try:
            command = self._client.get(f"commands/{jti}")
            is_silent = command["state"] == "unanswered"
            # Without an answer the next VM is asked, with another token.
            following = self._next(jti) if is_silent else None
        except UnreachableError:
            return None, jti  # a console that restarts continues the decision
        for step in command["history"]:
            self._show({"jti": jti, "vmId": command["vmId"], **step})
        if command["state"] in outcomes.FINAL and following is None:
            return self._end(command), jti
        return None, following or jti

    def _next(self, jti: str) -> str | None:
        """Return the jti of the command that follows this one about the event; None if it was the
        last.
        """
        timeline = self._client.get(event_path(self._event_id))["timeline"]
        sent = [
            each["jti"]
            for each in timeline
            if each["kind"] == "command" and each["act"] == "approve"
        ]
        ids = list(dict.fromkeys(sent))
        at = ids.index(jti) + 1 if jti in ids else len(ids)
        return ids[at] if at < len(ids) else None

    def _end(self, command: Mapping[str, Any]) -> int:
        state = command["state"]
        reason = command["reason"]
        ending = outcomes.ending(state, reason)
        if ending is None:
            return OK
        click.echo(f"seb console: {plain(ending[0])} {plain(ending[1])}", err=True)
        if state == "unanswered":
            return NO_REPLY
        return NOT_PERMITTED if reason == "not_allowed" else NO

    def _show(self, step: Mapping[str, Any]) -> None:
        key = (str(step["jti"]), str(step["state"]))
        if key in self._shown:
            return
        self._shown.add(key)
        if self._as_json:
            click.echo(json.dumps({"eventId": self._event_id, **step}))
            return
        reason = f": {step['reason']}" if step["reason"] else ""
        about = f"  {step['jti']}" if step["jti"] else ""
        click.echo(plain(f"{step['state']}{reason}  {self._event_id}{about}"))
