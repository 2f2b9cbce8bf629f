"""The oracle of approvals that were killed on the way: it judges by the audit, the decisions, the
commands that were sent and the POSTs at IMDS, and by nothing that the console's code knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from support.console.decision_bench import audit
from support.console.killable_console import KillableConsole, KillableHttpsConsole
from support.console.process import ConsoleProcess
from support.eventually import eventually

NOT_ASKED = "not asked"


@dataclass(slots=True, kw_only=True)
class ApprovalOracle:
    """What became of each round."""

    scene: KillableConsole | KillableHttpsConsole
    ends: dict[str, str] = field(default_factory=dict)
    """By event id, how it ended."""
    steps: dict[str, str] = field(default_factory=dict)
    """By event id, where something was killed."""

    def enter(self, console: ConsoleProcess, event_id: str, step: str) -> None:
        """Wait for the end of a round. Raises `AssertionError` if there is none."""
        self.steps[event_id] = step
        if not any(row["eventId"] == event_id for row in audit(console)):
            self.ends[event_id] = NOT_ASKED
            return

        def has_ended() -> bool:
            self.scene.spread(event_id)
            return _outcomes(console, event_id) != []

        try:
            eventually(has_ended, what="an end", timeout=100)
        except AssertionError as error:
            raise AssertionError(f"{step}: {error}\n{_told(console, event_id)}") from None
        (self.ends[event_id],) = _outcomes(console, event_id)

    def judge(self, console: ConsoleProcess, case: str, *, may_end: set[str]) -> str:
        """The figures of a case that went well. Raises `AssertionError` with all that is wrong."""
        wrong = list(self._wrong(console, may_end))
        assert not wrong, "\n  ".join([f"{case}:", *wrong[:20]])
        counted = sorted(Counter(self.ends.values()).items())
        ends = "  ".join(f"{end} {count}" for end, count in counted)
        posts, signed = len(self.scene.effective), len(self.scene.commands)
        return f"faults: {case:<44}  rounds {len(self.ends)}  {ends}  POSTs {posts}  sent {signed}"

    def _wrong(self, console: ConsoleProcess, may_end: set[str]) -> Iterator[str]:
        rows = audit(console)
        for event_id, end in self.ends.items():
            own = [row for row in rows if row["eventId"] == event_id]
            for words in self._wrong_round(console, event_id, end, own):
                yield f"killed at {self.steps[event_id]!r}: {words}"
            if end not in may_end:
                yield f"killed at {self.steps[event_id]!r}: it ended as {end}"
        yield from self._wrong_commands(rows)
        verified = console.run("audit", "verify")
        if verified.returncode != 0:
            yield f"the chain: {verified.stdout}{verified.stderr}"

    def _wrong_round(
        self, console: ConsoleProcess, event_id: str, end: str, rows: list[dict[str, Any]]
    ) -> Iterator[str]:
        approved = [row["decision"] for row in rows if row["action"] == "approve"]
        taken_over = [row["decision"] for row in rows if row["action"] == "take_over"]
        posts = self.scene.effective.count(event_id)
        if len(approved) != (0 if end == NOT_ASKED else 1):
            yield f"{len(approved)} rows of the decision"
        if len(rows) != len(approved) + len(taken_over) or not set(taken_over) <= set(approved):
            yield f"rows that belong to no decision: {rows}"
        if _outcomes(console, event_id) != ([] if end == NOT_ASKED else [end]):
            yield f"its end was {end}, and is {_outcomes(console, event_id)}"
        if posts > 1 or (end == NOT_ASKED and posts) or (end == "confirmed" and not posts):
            yield f"{posts} effective POSTs, and its end is {end}"

    def _wrong_commands(self, rows: list[dict[str, Any]]) -> Iterator[str]:
        """Each token that was seen has its row, and says what the row says."""
        audited = {row["jti"]: row for row in rows if "jti" in row}
        for jti, claims in self.scene.commands.items():
            row = audited.get(jti, {})
            expected = (row.get("eventId"), f"urn:seb:vm:{row.get('vmId')}", row.get("actor"))
            if (claims["evt"], claims["aud"], claims["sub"]) != expected:
                yield f"signed without such a row: {claims}"


def _outcomes(console: ConsoleProcess, event_id: str) -> list[str]:
    """The ends of the decisions on an event."""
    items = console.get(f"events/{event_id}")["timeline"]
    return [item["outcome"] for item in items if item["kind"] == "decision" and item["outcome"]]


def _told(console: ConsoleProcess, event_id: str) -> str:
    return f"{console.get(f'events/{event_id}')}\n{console.log[-3000:]}"
