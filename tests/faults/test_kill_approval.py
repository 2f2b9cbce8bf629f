"""kill -9 aimed at each step of an approval: verify, post, receipt."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.faults import strace as fault_strace
from support.faults.approvals import STEPS, Court, evidence_of
from support.faults.gate import GatedReceiver
from support.faults.oracle import Evidence, Figures, judge, outbox_of
from support.faults.sizes import sizes

pytestmark = pytest.mark.skipif(
    fault_strace.why_not() is not None, reason=str(fault_strace.why_not())
)


def die(home: Path, steps: Sequence[str], *, rounds: int, seed: int) -> Evidence:
    """Deaths at each of the steps, by a command and by a rule in turn, and a life to the end."""
    with GatedReceiver() as receiver:
        court = Court(home, receiver, seed=seed)
        with court.stage:
            for number in range(rounds):
                for place, step in enumerate(steps):
                    court.die_at(step, by_rule=(number + place) % 2 == 1)
            assert court.live_to_the_end() == 0
            assert court.witness.causeless == []
            for receipt in court.receipts:
                by_rule = receipt["actor"].startswith("rule:")
                assert by_rule or receipt["rsn"] == f"reason of {receipt['jti']}"
            return Evidence(
                case="kill -9 at: " + (steps[0] if len(steps) == 1 else "some steps of approval"),
                rounds=rounds * len(steps),
                outbox=outbox_of(home, court.env),
                **evidence_of(court),
            )


def test_a_death_at_some_steps(tmp_path: Path, tell: Callable[[Figures], None]) -> None:
    """One store lives through a death at each of them, one after the other."""
    steps = ["verify, not synced", "accepted, not posted", "post, answer withheld"]
    tell(judge(die(tmp_path, steps, rounds=1, seed=1)))


@pytest.mark.parametrize("step", STEPS)
@sizes("rounds", None, 4, 63)
def test_deaths_at_a_step(
    tmp_path: Path, step: str, tell: Callable[[Figures], None], rounds: int
) -> None:
    """The same step again and again, by commands and by a rule."""
    tell(judge(die(tmp_path, [step], rounds=rounds, seed=rounds)))
