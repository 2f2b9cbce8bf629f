"""The service `seb` on a machine of the ground, asked through systemd."""

from __future__ import annotations

from support.eventually import eventually
from support.ground.nspawn import Machine


def show(machine: Machine, name: str) -> str:
    """A property of the service."""
    return machine.run(f"systemctl show -p {name} --value seb").strip()


def wait_for(machine: Machine, name: str, value: str, *, timeout: float = 120) -> None:
    """Wait until a property of the service has a value."""
    eventually(lambda: show(machine, name) == value, what=f"{name}={value}", timeout=timeout)


def this_run(machine: Machine) -> str:
    """The log of the service since its last start."""
    here = show(machine, "InvocationID")
    return machine.run(f"journalctl --no-pager -o cat _SYSTEMD_INVOCATION_ID={here}")


def restarted(machine: Machine, pid: str) -> None:
    """Wait until it runs again, and is ready, as another process."""
    eventually(lambda: show(machine, "MainPID") not in (pid, "0"), what="restart", timeout=180)
    wait_for(machine, "ActiveState", "active")
