"""High speed, one fault after the other, for long: nothing is lost, and nothing grows."""

from collections.abc import Callable, Sequence
from pathlib import Path

from support.faults.oracle import Evidence, Figures, certain, judge, outbox_of
from support.faults.process import needs_proc
from support.faults.sizes import sizes
from support.faults.soak import RULE, Sample, Soak

pytestmark = needs_proc
MEMORY = 10.0
"""MiB that the last tenth may need more than the first: caches fill, and nothing else."""
HANDLES = 12
"""Threads or descriptors: what is stuck on a dead connection ends within its deadline."""
STORE = 12.0
"""MiB of the store: a thousand delivered records, its log, and what waits for a sink."""
LOOKS = 3


def soak(home: Path, seconds: float, seed: int) -> Figures:
    """So long, and the verdict."""
    with Soak(home, seed=seed) as run:
        run.run(seconds)
        assert run.bridge.stop() == 0
        assert "Traceback" not in run.bridge.errors
        received = run.received
        evidence = Evidence(
            case=f"soak of {seconds:.0f} s",
            rounds=run.struck.total(),
            received=received,
            documents=certain(run.simulator, looks=LOOKS),
            standing=run.simulator.history[-1].json(),
            outbox=outbox_of(home, run.env),
            posts=run.simulator.approvals,
            rules=[RULE],
        )
    tenth = len(run.samples) // 10
    first, last = run.samples[:tenth], run.samples[-tenth:]
    assert memory(last) - memory(first) < MEMORY
    assert threads(last) - threads(first) < HANDLES
    assert descriptors(last) - descriptors(first) < HANDLES
    assert max(sample.store for sample in last) < STORE
    more = (
        f"memory {memory(first):.1f} to {memory(last):.1f} MiB  "
        f"threads {threads(first)} to {threads(last)}  "
        f"descriptors {descriptors(first)} to {descriptors(last)}  "
        f"store {max(sample.store for sample in last):.1f} MiB"
    )
    return judge(evidence, more=more)


def memory(samples: Sequence[Sample]) -> float:
    """Their mean, in MiB."""
    return sum(sample.used.memory for sample in samples) / len(samples)


def threads(samples: Sequence[Sample]) -> int:
    """The fewest: what is stuck for a moment is not what is kept."""
    return min(sample.used.threads for sample in samples)


def descriptors(samples: Sequence[Sample]) -> int:
    """The fewest, as above."""
    return min(sample.used.descriptors for sample in samples)


@sizes("seconds", None, 80, 2400)
def test_a_soak(tmp_path: Path, tell: Callable[[Figures], None], seconds: float) -> None:
    """More than a minute; at length, forty."""
    tell(soak(tmp_path, seconds, seed=1))
