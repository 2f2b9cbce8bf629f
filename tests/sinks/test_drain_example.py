"""The example program that takes a VM out of service and back."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.process.scripts import shell_script

from sinks.kinds.program.variables import environment
from sinks.samples import sample_bridge_record
from sinks.testing import sample_record
from wire.record import EVENT_ENDED, EVENT_STARTED, EVENT_UPDATED, Record

SCRIPT = Path(__file__).parents[2] / "examples" / "drain.sh"

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX scripts")


class DrainVm:
    """The VM as the script sees it: its directory, and an `ss` that lists connections."""

    def __init__(self, directory: Path) -> None:
        self._bin = directory / "bin"
        self._bin.mkdir()
        self.marks = directory / "drain"
        self._connections = directory / "connections"
        self._connections.touch()
        # Each look at the connections finds one less.
        shell_script(
            self._bin / "ss",
            f'cd "{directory}"; cat connections; tail -n +2 connections > less; '
            "mv less connections",
        )

    def connect(self, count: int) -> None:
        """Make `ss` list so many clients."""
        self._connections.write_text("ESTAB\n" * count)

    def without_ss(self) -> None:
        """Make `ss` missing or broken."""
        shell_script(self._bin / "ss", "exit 127")

    def run(self, record: Record, **variables: str) -> int:
        """Run the script for a record; return its exit code."""
        parent: Mapping[str, str] = {
            "PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}",
            "DRAIN_DIR": str(self.marks),
            **variables,
        }
        done = subprocess.run(
            [SCRIPT], env=environment(record, parent), input=record.body, check=False, timeout=30
        )
        return done.returncode

    def draining(self) -> set[str]:
        """The events that keep the VM out of service."""
        return {path.name for path in self.marks.iterdir()} if self.marks.exists() else set()


@pytest.fixture
def vm(tmp_path: Path) -> DrainVm:
    """A VM in service."""
    return DrainVm(tmp_path)


def reboot(sequence: int = 1, *, impact: str = "restart", **fields: str) -> Record:
    """A record of an event that restarts the VM."""
    record = sample_record(sequence, event_id="A-1", **fields)  # type: ignore[arg-type]
    record.data["impact"] = impact  # type: ignore[index]
    return record


def test_it_takes_the_vm_out_of_service_and_back(vm: DrainVm) -> None:
    """The script takes the VM out of service at the notice and back at the end; each step may run
    twice.
    """
    for record in (reboot(1), reboot(2, record_type=EVENT_UPDATED)):
        assert (vm.run(record), vm.run(record), vm.draining()) == (0, 0, {"A-1"})
    ended = reboot(3, record_type=EVENT_ENDED)
    assert (vm.run(ended), vm.run(ended), vm.draining()) == (0, 0, set())


def test_an_event_that_no_longer_names_this_vm(vm: DrainVm) -> None:
    """The script puts the VM back into service when the event no longer names it, before the event
    ends.
    """
    assert vm.run(reboot()) == 0
    elsewhere = reboot(2, record_type=EVENT_UPDATED, resources=("db-1",))  # type: ignore[arg-type]
    assert (vm.run(elsewhere), vm.draining()) == (0, set())


def test_two_events_overlap(vm: DrainVm) -> None:
    """The script keeps the VM out of service for the second event when the first one ends."""
    other = sample_record(2, event_id="B-2")
    other.data["impact"] = "redeploy"  # type: ignore[index]
    assert (vm.run(reboot()), vm.run(other)) == (0, 0)
    assert vm.run(reboot(3, record_type=EVENT_ENDED)) == 0
    assert vm.draining() == {"B-2"}


def test_records_that_need_no_drain(vm: DrainVm) -> None:
    """The script does nothing for a pause, for events of other VMs, for records about the bridge,
    and for an end after a reboot has cleared its directory.
    """
    other = sample_record(resources=("db-1",))
    ended = reboot(record_type=EVENT_ENDED)
    for record in (
        reboot(impact="none"),
        reboot(impact="pause"),
        other,
        sample_bridge_record(),
        ended,
    ):
        assert (vm.run(record), vm.draining()) == (0, set())


@pytest.mark.parametrize(
    ("clients", "seconds", "code"), [(1, {}, 0), (9, {"DRAIN_SECONDS": "0"}, 1)]
)
def test_it_waits_until_no_client_is_connected(
    vm: DrainVm, capfd: pytest.CaptureFixture[str], clients: int, seconds: dict[str, str], code: int
) -> None:
    """The script ends with success once the last client has gone. If clients stay it fails: the VM
    stays out of service, and the event is not approved.
    """
    vm.connect(clients)
    assert vm.run(reboot(), DRAIN_PORT="8080", **seconds) == code
    assert vm.draining() == {"A-1"}
    assert ("port 8080 still has connections" in capfd.readouterr().err) == bool(code)


def test_a_missing_tool_is_a_failure(vm: DrainVm) -> None:
    """The script fails if it cannot list the connections, so that the event is not approved."""
    vm.without_ss()
    assert vm.run(reboot(), DRAIN_PORT="8080") != 0


def test_an_event_that_has_started_is_not_waited_for(vm: DrainVm) -> None:
    """The script does not wait for clients if the event has started: failed hardware gives no
    notice.
    """
    vm.connect(9)
    assert vm.run(reboot(record_type=EVENT_STARTED), DRAIN_PORT="8080") == 0
    assert vm.draining() == {"A-1"}
