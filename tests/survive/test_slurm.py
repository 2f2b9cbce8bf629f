"""What only Slurm has: jobs that run on the node, and nodes that a person has drained."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.survive.cluster import wait_for
from tests.survive.services.slurm import Slurm
from tests.survive.test_recipes import SOON, RecipeVm

pytestmark = [pytest.mark.survive, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """The cluster, once for all tests."""
    with Slurm() as running:
        yield running


@pytest.fixture
def node(slurm: Slurm, tmp_path: Path) -> Iterator[RecipeVm]:
    """A node of a whole cluster; it is whole afterwards too, and no job is left."""
    wait_for(slurm.is_whole, what="a whole cluster")
    vm = RecipeVm(slurm, slurm.leader(), tmp_path)
    yield vm
    slurm.ask("scancel", "--state=RUNNING")
    slurm.ask("scancel", "--state=PENDING")
    vm.await_whole()


def submit(node: RecipeVm, seconds: float, *options: str) -> str:
    """Begin a job on the node, and wait until it runs; its id."""
    slurm = node.cluster
    assert isinstance(slurm, Slurm)
    name, job = slurm.machines[node.number].name, f"#!/bin/sh\nsleep {seconds}\n"
    (slurm.directory / "job.sh").write_text(job)
    log = f"--output={slurm.directory}/job.log"
    command = ["sbatch", "--parsable", "-w", name, log, *options, str(slurm.directory / "job.sh")]
    found = slurm.ask(*command).strip()
    wait_for(lambda: state_of(slurm, found) == "RUNNING", what="a job that runs")
    return found


def state_of(slurm: Slurm, job: str) -> str:
    """What Slurm says of a job, such as `RUNNING`."""
    return slurm.ask("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()


def reason_of(slurm: Slurm, node: RecipeVm) -> str:
    """Why a node is drained."""
    return slurm.ask("sinfo", "-h", "-n", slurm.machines[node.number].name, "-o", "%E").strip()


def test_a_job_may_end(slurm: Slurm, node: RecipeVm) -> None:
    """The recipe is done once the job has ended, not before."""
    job = submit(node, 8)
    node.prepare_until_done()
    assert state_of(slurm, job) == "COMPLETED"
    node.recover_until_done()


def test_a_job_that_does_not_end(slurm: Slurm, node: RecipeVm) -> None:
    """The recipe waits while there is time, and then gives up and names the job, which runs on."""
    job = submit(node, 600)
    early, late = node.prepare(), node.prepare(notice=SOON)
    assert (early.code, late.code) == (75, 65), (early, late)
    assert job in late.reason
    assert state_of(slurm, job) == "RUNNING"
    assert slurm.leader() != node.number, "a new job would die with the node"
    slurm.ask("scancel", job)
    node.recover_until_done()


def test_a_job_may_be_requeued(slurm: Slurm, node: RecipeVm) -> None:
    """Near the event the job is requeued, if the site has chosen that and the job allows it; not
    for a freeze.
    """
    job, fixed = submit(node, 600), submit(node, 600, "--no-requeue")
    choice = {"SLURM_REQUEUE": "300"}
    assert node.prepare(more=choice).code == 75
    assert node.prepare(notice=200, more={**choice, "SEB_EVENT_IMPACT": "pause"}).code == 75
    assert state_of(slurm, job) == "RUNNING"
    refused = node.prepare(notice=200, more=choice)
    assert refused.code == 75, refused
    assert fixed in refused.reason
    assert [state_of(slurm, each) for each in (job, fixed)] == ["PENDING", "RUNNING"]
    slurm.ask("scancel", fixed)
    node.prepare_until_done()
    node.recover_until_done()


@pytest.mark.parametrize("state", ["drain", "down"])
def test_a_node_that_a_person_has_taken_out(slurm: Slurm, node: RecipeVm, state: str) -> None:
    """A node that a person has drained is ready for the event, and stays drained for that person's
    reason.
    """
    name = f"nodename={slurm.machines[node.number].name}"
    slurm.ask("scontrol", "update", name, f"state={state}", "reason=bad disk")
    assert [node.prepare().code, node.recover().code] == [0, 0]
    assert reason_of(slurm, node) == "bad disk"
    slurm.ask("scontrol", "update", name, "state=resume")


def test_a_node_that_a_person_drains_meanwhile(slurm: Slurm, node: RecipeVm) -> None:
    """A node that a person has drained during the event stays drained after it."""
    node.prepare_until_done()
    assert reason_of(slurm, node) == "seb: scheduled event"
    name = f"nodename={slurm.machines[node.number].name}"
    slurm.ask("scontrol", "update", name, "state=drain", "reason=bad disk")
    assert node.recover().code == 0
    assert reason_of(slurm, node) == "bad disk"
    slurm.ask("scontrol", "update", name, "state=resume")


def test_a_node_that_comes_back_later_than_the_bridge(slurm: Slurm, node: RecipeVm) -> None:
    """A node is not resumed before its slurmd answers: jobs that it gets would fail."""
    node.prepare_until_done()
    machine = slurm.machines[node.number]
    machine.ask("stop", "slurmd")
    early = node.recover()
    assert early.code == 75, early
    assert reason_of(slurm, node) == "seb: scheduled event"
    machine.ask("start", "slurmd")
    node.recover_until_done()


def test_a_controller_that_is_down(slurm: Slurm, node: RecipeVm) -> None:
    """If the controller is down, the recipe asks again, and gives up only when the time is over."""
    slurm.stop_controller()
    prepared = node.prepare()
    slurm.start_controller()
    assert prepared.code == 75, prepared
    assert "controller" in prepared.reason
    node.await_whole()


def test_an_unknown_name(node: RecipeVm) -> None:
    """With a wrong SLURM_NODE the recipe gives up at once, with the reason."""
    refused = node.prepare(more={"SLURM_NODE": "misspelt"})
    assert refused.code == 65
    assert "misspelt" in refused.reason
