"""Each recipe on its real service: killed, repeated, refused, and without answers."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sinks.kinds.program.variables import environment
from sinks.samples import sample_record
from tests.survive.clients import load
from tests.survive.cluster import Cluster, holds, wait_for
from tests.survive.services import SERVICES
from wire.record import EVENT_ENDED, Record

pytestmark = [pytest.mark.survive, pytest.mark.timeout(600)]

SOON, LATER = 5.0, 600.0
"""Seconds until the event starts: too few to wait for anything, and enough."""
STILL_SECONDS = 2.5
"""Long enough that Redis' Sentinel distrusts its clock, and no service calls the member down."""
DISTRUST_SECONDS = 32.0
"""How long it does so (TILT mode), and a moment."""
KILLS = 3
"""How many moments of a run are tried, from its first command to its last."""


@dataclass(frozen=True, slots=True)
class RecipeRun:
    """What became of a run of the program."""

    code: int
    reason: str
    steps: int
    """How many commands of the service it has started."""


class RecipeVm:
    """A recipe's program on one member, as the bridge runs it."""

    def __init__(self, cluster: Cluster, number: int, scratch: Path) -> None:
        self.cluster = cluster
        self.number = number
        self._bin = scratch
        self._count = scratch / "count"
        self._path = cluster.machines[number].environment["PATH"]
        for tool in cluster.TOOLS:
            self.wrap(tool)

    def become_leader(self) -> None:
        """Be the member that leads now."""
        self.number = self.cluster.leader()

    def wrap(self, tool: str, before: str = "") -> None:
        """Count what runs it, kill and hang it as wanted; `before` are lines of shell before it."""
        real = shutil.which(tool, path=self._path)
        assert real is not None, f"{tool} is not installed"
        script = self._bin / tool
        script.write_text(
            "#!/bin/sh\n"
            f'echo {tool} >>"{self._count}"\n'
            f'[ "$(wc -l <"{self._count}")" != "$KILL_AT" ] || kill -9 0\n'
            '[ -z "$HANG" ] || exec sleep 600\n'
            f"{before}"
            f'exec {real} "$@"\n'
        )
        script.chmod(0o755)

    def prepare(
        self,
        event: str = "A",
        *,
        notice: float = LATER,
        kill_at: int = 0,
        hang: bool = False,
        more: Mapping[str, str] | None = None,
    ) -> RecipeRun:
        """Run it for a scheduled event; `more` are variables that a site sets."""
        due = datetime.now(UTC) + timedelta(seconds=notice)
        facts = {"SEB_EVENT_NOT_BEFORE": due.strftime("%Y-%m-%dT%H:%M:%SZ"), **(more or {})}
        record = sample_record(event_id=event)
        return self._run(record, facts, kill_at=kill_at, hang=hang)

    def recover(self, event: str = "A", *, kill_at: int = 0, hang: bool = False) -> RecipeRun:
        """Run it for the end of the event."""
        record = sample_record(record_type=EVENT_ENDED, event_id=event)
        return self._run(record, {}, kill_at=kill_at, hang=hang)

    def _run(
        self, record: Record, facts: Mapping[str, str], *, kill_at: int, hang: bool
    ) -> RecipeRun:
        self._count.write_text("")
        more = {
            "PATH": f"{self._bin}{os.pathsep}{self._path}",
            "KILL_AT": str(kill_at),
            "HANG": "yes" if hang else "",
        }
        machine = self.cluster.machines[self.number].environment
        own = self.cluster.recipe_variables(self.number)
        env = environment(record, {**machine, **own, **more})
        done = subprocess.run(
            [self.cluster.program],
            env={**env, "SEB_EVENT_IMPACT": "redeploy", **facts},
            input=record.body,
            check=False,
            capture_output=True,
            timeout=float(self.cluster.settings["SEB_SINK__RECIPE__TIMEOUT"]),
            start_new_session=True,
        )
        steps = len(self._count.read_text().splitlines())
        return RecipeRun(done.returncode, done.stderr.decode(), steps)

    def prepare_until_done(self, event: str = "A") -> None:
        """As the bridge does: again, until it ends with 0."""
        wait_for(lambda: self.prepare(event).code == 0, what="a preparation")

    def recover_until_done(self, event: str = "A") -> None:
        """The same for its end; afterwards the cluster is whole."""
        wait_for(lambda: self.recover(event).code == 0, what="a recovery")
        self.await_whole()

    def await_whole(self) -> None:
        """Wait until every member takes part."""
        wait_for(self.cluster.is_whole, what="a whole cluster")


@pytest.fixture(scope="module", params=SERVICES)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The service, once for all tests."""
    service = SERVICES[request.param]
    if why := service.missing():
        pytest.skip(why)
    with service() as running:
        yield running


@pytest.fixture
def leader(cluster: Cluster, tmp_path: Path) -> Iterator[RecipeVm]:
    """The member that an event hurts most; the cluster is whole before and after."""
    wait_for(cluster.is_whole, what="a whole cluster")
    vm = RecipeVm(cluster, cluster.leader(), tmp_path)
    yield vm
    for event in ("A", "B"):  # a test that failed may have left it prepared
        vm.recover(event)
    vm.await_whole()


def moments(steps: int) -> list[int]:
    """Which commands of so many a run is killed at."""
    assert steps > 0
    return sorted({1 + round(place * (steps - 1) / (KILLS - 1)) for place in range(KILLS)})


def test_it_hands_over_and_comes_back(leader: RecipeVm) -> None:
    """After the preparation another member leads; after the recovery the cluster is whole, once all
    members have reported that.
    """
    assert leader.prepare().code == 0
    assert leader.cluster.leader() != leader.number
    assert leader.recover().code == 0
    leader.await_whole()


def test_it_can_be_repeated(leader: RecipeVm) -> None:
    """A record that comes twice changes nothing the second time."""
    assert [leader.prepare().code, leader.prepare().code] == [0, 0]
    assert [leader.recover().code, leader.recover().code] == [0, 0]


def test_killed_while_it_prepares(leader: RecipeVm) -> None:
    """A run that is killed at any of its commands is completed, or undone, by the next one."""
    steps = leader.prepare().steps
    leader.recover_until_done()
    for number, moment in enumerate(moments(steps)):
        leader.become_leader()
        killed = leader.prepare(kill_at=moment)
        assert killed.code in {-9, 0}, killed  # how often it looks whether another leads varies
        if number % 2:
            leader.prepare_until_done()
        leader.recover_until_done()


def test_killed_while_it_recovers(leader: RecipeVm) -> None:
    """A recovery that is killed at any of its commands is completed by the next one."""
    leader.prepare_until_done()
    steps = leader.recover().steps
    for moment in moments(steps):
        leader.prepare_until_done()
        killed = leader.recover(kill_at=moment)
        assert killed.code in {-9, 0}, killed  # how often it looks whether it is back varies
        leader.recover_until_done()


def test_a_cluster_that_is_one_short(leader: RecipeVm) -> None:
    """In a cluster that lacks a member the recipe hands nothing over: it waits while there is time,
    and then gives up with the reason.
    """
    cluster = leader.cluster
    other = cluster.machines[(leader.number + 1) % len(cluster.machines)]
    other.kill()
    try:
        wait_for(lambda: not holds(cluster.is_whole), what="a cluster that knows it")
        early, late = leader.prepare(), leader.prepare(notice=SOON)
        assert (early.code, late.code) == (75, 65), (early, late)
        assert "short" in late.reason
        assert cluster.leader() == leader.number
    finally:
        other.boot()
    leader.recover_until_done()


def test_tools_that_do_not_answer(leader: RecipeVm) -> None:
    """If the service's tools do not answer, the recipe ends in time with the reason, and the
    cluster is as it was.
    """
    prepared = leader.prepare(hang=True)
    assert prepared.code not in {0, -9}, prepared
    assert prepared.reason.strip()
    leader.await_whole()  # the members may have elected another leader meanwhile, by themselves
    leader.prepare_until_done()
    recovered = leader.recover(hang=True)
    assert recovered.code not in {0, 65, -9}, recovered
    assert recovered.reason.strip()
    leader.recover_until_done()


def test_a_vm_that_stood_still_a_moment_ago(leader: RecipeVm) -> None:
    """Preparing a VM that has just stood still loses no acknowledged write, even if its tools wait
    for a while first.
    """
    machine = leader.cluster.machines[leader.number]
    with load(leader.cluster.client()) as found:
        machine.freeze()
        time.sleep(STILL_SECONDS)
        machine.thaw()
        if leader.prepare().code != 0:
            time.sleep(DISTRUST_SECONDS)  # what was begun must not be carried out now
        leader.prepare_until_done()
        leader.recover_until_done()
    assert found["lost"] == 0, found


def test_two_events_of_one_vm(leader: RecipeVm) -> None:
    """The end of one event does not undo the preparation for another."""
    assert [leader.prepare("A").code, leader.prepare("B").code] == [0, 0]
    assert leader.recover("A").code == 0
    assert not holds(leader.cluster.is_whole)
    leader.recover_until_done("B")


def test_one_member_at_a_time(leader: RecipeVm, tmp_path: Path) -> None:
    """While one member is prepared, the recipe on another one waits and says why."""
    cluster = leader.cluster
    (tmp_path / "other").mkdir()
    other = RecipeVm(cluster, (leader.number + 1) % len(cluster.machines), tmp_path / "other")
    leader.prepare_until_done()
    refused = other.prepare()
    assert refused.code == 75, refused
    assert refused.reason.strip()
    leader.recover_until_done()
    other.prepare_until_done()
    other.recover_until_done()


def test_two_members_at_the_same_moment(leader: RecipeVm, tmp_path: Path) -> None:
    """Of two members that prepare at the same moment at most one leaves, and the service works
    on.
    """
    cluster = leader.cluster
    (tmp_path / "other").mkdir()
    other = RecipeVm(cluster, (leader.number + 1) % len(cluster.machines), tmp_path / "other")
    both = (leader, other)
    with ThreadPoolExecutor() as pool:
        codes = {each.code for each in pool.map(RecipeVm.prepare, both)}
    assert codes in ({0, 75}, {75}), codes
    with load(cluster.client()):
        pass  # its first write is acknowledged
    for vm in both:
        vm.recover()
    for vm in both:
        vm.recover_until_done()
