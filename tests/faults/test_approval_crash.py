"""A crash between any two steps of an approval: one effective approval, one final receipt."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.commands.approval_bench import ApprovalBench, fails
from support.documents.documents import EVENT_ID, entry

from bridge.config.approval import Rule
from bridge.store.database import StoreError

LOOKS = 15
"""More than any of the scripts takes."""


class Crash(BaseException):
    """The process is gone; nothing catches this."""


class CrashPoint(NamedTuple):
    """The thing that leaves a trace on disk or at IMDS, before or after which something happens."""

    number: int
    name: str
    after: bool
    error: Callable[[], BaseException]

    def __str__(self) -> str:
        return f"{self.name} {self.number}"


class Fuse:
    """Goes off at a step."""

    def __init__(self, step: CrashPoint) -> None:
        self._left = step.number
        self._after = step.after
        self._error = step.error
        self.breaks_posts = step.error is Crash
        self.blown = False

    def around(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same work, with the fuse."""

        def fused(*args: Any, **how: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                self.blow()
            try:
                return work(*args, **how)
            finally:
                if self._left == 0 and self._after:
                    self.blow()

        return fused

    def blow(self) -> None:
        self.blown = True
        raise self._error()


class FusedBench(ApprovalBench):
    """A bridge that crashes once, and a broker that sends again what was not acknowledged."""

    def __init__(self, directory: Path, fuse: Fuse, *rules: Rule) -> None:
        self.fuse = fuse
        self.queued: list[tuple[bytes, bool]] = []
        super().__init__(directory, *rules)

    def begin(self, directory: Path | None = None) -> None:
        super().begin(directory)
        self.store.commit = self.fuse.around(self.store.commit)  # type: ignore[method-assign]
        if self.fuse.breaks_posts:
            start = type(self.imds).start.__get__(self.imds)
            self.imds.start = self.fuse.around(start)  # type: ignore[method-assign]

    def poll(self, *, after: float = 1.0) -> None:
        self.clock.advance(after)
        self.poller.run()
        self.approvals.note_poll()
        self.go_on()

    def begins(self) -> None:
        """An event is announced and seen."""
        self.imds.events_now[EVENT_ID] = entry()
        self.live(2)

    def do(self, work: Callable[[], object]) -> None:
        """Some work; where it ends in a crash, another run begins."""
        try:
            work()
        except Crash:
            self.restart()
        except StoreError:
            pass

    def live(self, looks: int) -> None:
        """So many looks; what the broker still has comes in after the first of each run."""
        for _ in range(looks):
            self.do(self.poll)
            for token, again in list(self.queued):
                before = self.settled
                self.queued[0] = (token, True)
                self.do(lambda token=token, again=again: self.send(token, redelivered=again))
                if self.settled > before:
                    self.queued.remove((token, True))


STEPS = [
    CrashPoint(number, name, after, error)
    for number in range(1, 13)
    for name, after, error in (
        ("crash before", False, Crash),
        ("crash after", True, Crash),
        ("disk full at", False, lambda: StoreError("the disk is full")),
    )
]


def check(bench: FusedBench, *, effective: list[str] | None = None) -> None:
    """One effective approval, with a stored cause; one final receipt for each cause."""
    assert ([EVENT_ID] if effective is None else effective) == bench.imds.effective
    fields: dict[str, list[str]] = {}
    for receipt in bench.receipts():
        fields.setdefault(receipt["jti"], []).append(receipt["state"])
    assert fields
    for states in fields.values():
        assert states[0] == "accepted"
        assert sum(state in ("failed", "confirmed", "rejected") for state in states) == 1
        assert states[-1] in ("failed", "confirmed")
        assert len(states) == len(set(states)), "no step is told twice"
    assert bench.entries() == []


FAILURES: dict[str, Callable[[ApprovalBench], list[Callable[[str], None]]]] = {
    "IMDS is well": lambda bench: [],
    "IMDS is down first": lambda bench: [fails("refused")],
    "an answer is lost": lambda bench: [bench.imds.lose_answer],
    "IMDS is confused": lambda bench: [fails("http_500"), fails("refused")],
}


@pytest.mark.parametrize("cause", ["command", "rule"])
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_an_approval_survives_a_crash_at_any_step(
    tmp_path: Path, step: CrashPoint, failure: str, cause: str
) -> None:
    """However it ends in between, a command, or a rule's decision, has one effect and one end."""
    rules = [Rule(name="mine")] if cause == "rule" else []
    bench = FusedBench(tmp_path, Fuse(step), *rules)
    bench.imds.failures = FAILURES[failure](bench)
    bench.begins()
    if cause == "command":
        bench.queued.append((bench.approve(exp=bench.seconds + 900), False))
    bench.live(LOOKS)
    assert bench.queued == []
    assert bench.fuse.blown or cause == "command" or step.number > 3
    check(bench)
    bench.close()


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_start_that_nobody_approved_is_told_as_what_it_is(
    tmp_path: Path, step: CrashPoint
) -> None:
    """IMDS cannot be reached, the event starts by itself: no crash makes that two ends, or none."""
    bench = FusedBench(tmp_path, Fuse(step))
    bench.imds.failures = [fails("refused")] * 99
    bench.begins()
    bench.queued.append((bench.approve(exp=bench.seconds + 900), False))
    bench.live(5)
    bench.change(EventStatus="Started", NotBefore="")
    bench.live(5)
    check(bench, effective=[])
    bench.close()
