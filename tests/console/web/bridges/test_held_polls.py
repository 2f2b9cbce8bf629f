"""Which VM has a command to fetch, and when."""

from __future__ import annotations

from console.web.bridges.held_polls import RESEND_SECONDS, HeldPolls

NOW = 1000.0


def test_a_command_that_is_offered_while_the_queue_is_looked_at_is_not_lost() -> None:
    """A command that is offered after a look has begun is kept although that look finds nothing."""
    queue = HeldPolls()
    queue.offer("vm-1", "jti-1")
    queue.note_sent("vm-1", now=NOW)
    queue.offer("vm-1", "jti-2")
    queue.note_nothing_for("vm-1", now=NOW)
    assert queue.due("vm-1") == 0.0


def test_a_vm_without_a_command_is_not_looked_up_again() -> None:
    """A poll reads the database only after an offer for its VM."""
    queue = HeldPolls()
    assert queue.due("vm-1") is None
    queue.offer("vm-1", "jti-1")
    queue.note_sent("vm-1", now=NOW)
    queue.note_nothing_for("vm-1", now=NOW)
    assert queue.due("vm-1") is None


def test_a_jti_that_is_offered_twice_is_not_given_sooner() -> None:
    """A jti that is offered again, as each change of a command's row does, is not sent sooner."""
    queue = HeldPolls()
    queue.offer("vm-1", "jti-1")
    queue.note_sent("vm-1", now=NOW)
    queue.offer("vm-1", "jti-1")
    assert queue.due("vm-1") == NOW + RESEND_SECONDS
    queue.offer("vm-1", "jti-2")
    assert queue.due("vm-1") == 0.0


def test_the_commands_of_one_vm_are_no_other_vms() -> None:
    """Each VM has a queue of its own."""
    queue = HeldPolls()
    queue.offer("vm-1", "jti-1")
    assert queue.due("vm-2") is None
