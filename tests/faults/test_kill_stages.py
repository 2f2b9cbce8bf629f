"""kill -9 aimed at each step from IMDS's answer to the end of a delivery or of an approval."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.faults import strace as fault_strace
from support.faults.approvals import STEPS, MortalBench, evidence_of
from support.faults.gated_receiver import GatedReceiver
from support.faults.mortal_delivery import STAGES, MortalDelivery
from support.faults.oracle import Evidence, Figures, judge, outbox_of
from support.faults.sizes import sizes

from bridge.simulator.simulator import Simulator

pytestmark = pytest.mark.skipif(
    fault_strace.why_not() is not None, reason=str(fault_strace.why_not())
)


def die(home: Path, stages: Sequence[str], *, rounds: int, seed: int) -> Evidence:
    """A death at each of the stages, so many times over on one store, and a life to the end."""
    with Simulator() as simulator, GatedReceiver() as receiver:
        scene = MortalDelivery(home, simulator, receiver, seed=seed)
        for _ in range(rounds):
            for stage in stages:
                scene.die_at(stage)
        assert scene.live_to_the_end() == 0
        return Evidence(
            case=f"kill -9 at: {stages[0]}" if len(stages) == 1 else "kill -9 at every stage",
            rounds=rounds * len(stages),
            received=scene.received,
            documents=scene.observed.documents,
            standing=simulator.history[-1].json(),
            outbox=outbox_of(home, scene.env),
        )


def test_a_death_at_each_stage(tmp_path: Path, tell: Callable[[Figures], None]) -> None:
    """One store lives through a death at each of them, one after the other."""
    tell(judge(die(tmp_path, list(STAGES), rounds=1, seed=1)))


@pytest.mark.parametrize("stage", STAGES)
@sizes("rounds", None, 4, 63)
def test_deaths_at_a_stage(
    tmp_path: Path, stage: str, tell: Callable[[Figures], None], rounds: int
) -> None:
    """The same place again and again."""
    tell(judge(die(tmp_path, [stage], rounds=rounds, seed=rounds)))


def die_approving(home: Path, steps: Sequence[str], *, rounds: int, seed: int) -> Evidence:
    """Deaths at each of the steps, by a command and by a rule in turn, and a life to the end."""
    with GatedReceiver() as receiver:
        bench = MortalBench(home, receiver, seed=seed)
        with bench.stage:
            for number in range(rounds):
                for place, step in enumerate(steps):
                    bench.die_at(step, by_rule=(number + place) % 2 == 1)
            assert bench.live_to_the_end() == 0
            assert bench.witness.causeless == []
            for receipt in bench.receipts:
                by_rule = receipt["actor"].startswith("rule:")
                assert by_rule or receipt["rsn"] == f"reason of {receipt['jti']}"
            return Evidence(
                case="kill -9 at: " + (steps[0] if len(steps) == 1 else "some steps of approval"),
                rounds=rounds * len(steps),
                outbox=outbox_of(home, bench.env),
                **evidence_of(bench),
            )


def test_a_death_at_some_steps(tmp_path: Path, tell: Callable[[Figures], None]) -> None:
    """One store lives through a death at each of them, one after the other."""
    steps = ["verify, not synced", "accepted, not posted", "post, answer withheld"]
    tell(judge(die_approving(tmp_path, steps, rounds=1, seed=1)))


@pytest.mark.parametrize("step", STEPS)
@sizes("rounds", None, 4, 63)
def test_deaths_at_a_step(
    tmp_path: Path, step: str, tell: Callable[[Figures], None], rounds: int
) -> None:
    """The same step again and again, by commands and by a rule."""
    tell(judge(die_approving(tmp_path, [step], rounds=rounds, seed=rounds)))
