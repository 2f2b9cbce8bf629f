"""How a bridge is heard, as a function of its row and the time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.fleet.contact import Contact, Ears, contact, silent_after
from console.fleet.values import Vm

START = 1_000_000.0
EARS = Ears(started_at=START, silent_after=100.0, since={"mqtt": START, "hub": None})
VM = Vm(vm_id="id", name="web-1", heard_at=START, heard_by="mqtt")


@pytest.mark.parametrize(
    ("age", "expected"),
    [(0, "heard"), (50, "heard"), (50.1, "late"), (100, "late"), (100.1, "silent")],
)
def test_silence_grows_in_three_steps(age: float, expected: Contact) -> None:
    """Late past half of the silent time, silent past it, and not a moment before."""
    assert expected == contact(VM, START + age, EARS)


def test_three_heartbeats_are_the_silent_time_unless_given() -> None:
    """Each VM's own interval counts; the setting wins over it."""
    unset = replace(EARS, silent_after=None)
    assert silent_after(VM, unset) == 180
    assert silent_after(replace(VM, interval=10.0), unset) == 30
    assert silent_after(replace(VM, interval=10.0), EARS) == 100


def test_a_vm_known_from_before_is_learning_first() -> None:
    """After its start the console does not know; silent needs a silent time of listening."""
    old = replace(VM, heard_at=START - 5000)
    assert contact(old, START + 99, EARS) == "learning"
    assert contact(old, START + 101, EARS) == "silent"
    assert contact(replace(old, heard_at=START + 98), START + 99, EARS) == "heard"


def test_a_lost_connection_is_silent_at_once_and_stays_so_over_a_restart() -> None:
    """A last will needs no silent time, in this run or the next."""
    lost = replace(VM, lost_at=START + 1)
    assert contact(lost, START + 1, EARS) == "silent"
    assert contact(lost, START + 2, replace(EARS, started_at=START + 2)) == "silent"


def test_a_stopped_one_stays_stopped() -> None:
    """A farewell is not silence, however long ago."""
    stopped = replace(VM, stopped_at=START)
    assert contact(stopped, START + 10_000_000, EARS) == "stopped"
    assert contact(replace(stopped, lost_at=START + 1), START + 2, EARS) == "stopped"


def test_a_retired_one_is_retired() -> None:
    """Whatever else is known of it."""
    retired = replace(VM, retired_at=START, stopped_at=START, lost_at=START)
    assert contact(retired, START + 1, EARS) == "retired"


def test_a_deaf_console_calls_nobody_silent() -> None:
    """While its source is away, and for a silent time after that, the console does not know."""
    vm = replace(VM, heard_by="hub", heard_at=START + 10)
    assert contact(vm, START + 500, EARS) == "learning"
    back = replace(EARS, since={"hub": START + 500})
    assert contact(vm, START + 599, back) == "learning"
    assert contact(vm, START + 601, back) == "silent"


def test_a_clock_that_goes_back_silences_nobody() -> None:
    """The console's own clock may be set back: a VM heard in the future is heard."""
    assert contact(VM, START - 3600, EARS) == "heard"
