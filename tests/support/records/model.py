"""Any history of documents, stops, kills, copies of the store and settings, against one oracle."""

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)
from support.faults.oracle import Figures
from support.records.bench import RecordBench
from support.records.oracle import OURS, OracleState

from bridge.events import poller, tracked
from bridge.store import ballast, database, retention

MEMORY = Path("/dev/shm")
"""What is on disk is not the subject here, and many stores are made."""
Step = tuple[Any, ...]
"""The name of a method of `RecordBench`, and what it is called with."""
EVENTS = ("E-1", "E-2")
STATES: list[OracleState | None] = [
    OracleState(),
    OracleState(),
    OracleState(duration=60),
    OracleState(resources=("web_4",)),
    OracleState(resources=("web_4", OURS)),
    OracleState(status="Started"),
    None,
    None,
]
SETUPS = [
    (names, scope)
    for names in (
        "a b",
        "a b!",
        "a! b",
        "a",
        "b",
        "b!",
        "a c",
        "a b! c",
        "",
        "a~ b",
        "a~! b~",
        "b~ c",
    )
    for scope in (False, False, True)
]
SAYS = [("say", event, state) for event in EVENTS for state in STATES]
SERVES = [
    ("serve", sink, how)
    for sink in ("a", "b", "c")
    for how in ("all", "all", "all", "some", "unmarked", "refuse")
]
RESTARTS = [("restart", setup, in_order) for setup in SETUPS for in_order in (True, False)]
OTHERS = [
    *[("poll",)] * 8,
    *[("drain",)] * 3,
    ("copy",),
    ("heartbeat",),
    ("full_disk",),
    ("many", 5),
    *[("odd",)] * 2,
    *[("changes", event, 12) for event in EVENTS],
    *[("wait", seconds) for seconds in (4.0, 900.0)],
    *[("jump", seconds) for seconds in (-3600.0, 3600.0)],
    ("suspend", 8 * 3600.0),
]
HOW = ("freeze", "suspend", "pause")
STILL = [("stands_still", how, seconds) for how in HOW for seconds in (3.0, 20.0)]
SLOW = [
    ("slow_poll", how, seconds, until, "E-1", state)
    for how in (*HOW, "passes")
    for seconds in (3.0, 20.0)
    for until in ("answer", "commit")
    for state in (None, OracleState(), OracleState(status="Started"))
]
PUT_BACKS, LOSSES, CASES = (
    [(what, setup) for setup in SETUPS] for what in ("put_back", "lose", "case")
)


def _shares(*groups: tuple[int, list[Step]]) -> list[Step]:
    """The steps of all groups, each group with so large a share."""
    return [
        steps[place * len(steps) // (share * 9) if share * 9 < len(steps) else place % len(steps)]
        for share, steps in groups
        for place in range(share * 9)
    ]


STEPS = _shares(
    (30, SAYS),
    (25, OTHERS),
    (20, SERVES),
    (7, RESTARTS),
    (5, SLOW),
    (3, STILL),
    (3, PUT_BACKS),
    (1, LOSSES),
    (1, CASES),
)


class Histories(RuleBasedStateMachine):
    counts: ClassVar[Counter[str]] = Counter()
    """What happened in all histories together."""

    @initialize(setup=st.sampled_from(SETUPS))
    def begin(self, setup: tuple[str, bool]) -> None:
        self.counts["histories"] += 1
        self.root = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.bench = RecordBench(Path(self.root.name), setup)

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.counts["records"] += self.bench.records
            self.counts["documents"] += self.bench.imds.incarnation
            self.bench.store.close()
            self.root.cleanup()

    @rule(steps=st.lists(st.sampled_from(STEPS), min_size=5, max_size=30))
    def live(self, steps: list[Step]) -> None:
        """This happens, one after the other."""
        for name, *arguments in steps:
            self.counts["steps"] += 1
            kind = {"in_order": arguments.pop()} if name == "restart" else {}
            getattr(self.bench, name)(*arguments, **kind)


@contextmanager
def small() -> Iterator[None]:
    """The store remembers little, so that its limits are met within few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracked, "KEEP_ENDED", 3)
        patch.setattr(retention, "KEEP_DELIVERED", 5)
        patch.setattr(database, "PRUNE_EVERY", 1)
        patch.setattr(ballast, "SIZE_BYTES", 1)
        patch.setattr(poller, "time", SimpleNamespace(sleep=lambda _: None), raising=False)
        yield


def try_histories(examples: int, steps: int, *, number: int | None = None) -> Figures:
    """Live through so many histories of so many times up to thirty steps; what happened in them.
    `number` is the seed, for a run that can be repeated.
    """
    Histories.counts.clear()
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    machine = Histories if number is None else seed(number)(Histories)
    with small():
        run_state_machine_as_test(machine, settings=chosen)
    counts = Histories.counts
    assert counts["records"] > 0
    return Figures(
        case="records: any history",
        rounds=counts["histories"],
        documents=counts["documents"],
        records=counts["records"],
        repeated=0,
        dead=0,
        posts=0,
        more=f"{counts['steps']} steps",
    )
