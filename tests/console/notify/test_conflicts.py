"""Notices about a VM that reports another identity than the one it is known by: one at the start,
and one at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from console.db.notices import Incident
from console.fleet.values.vm import Vm
from console.notify.conflict_notices import conflict_notices
from console.notify.incidents import GATHER_SECONDS

_AT = 1_000_000.0


def in_conflict(number: int, *, since: float = _AT, is_taken: bool = False) -> Vm:
    """Return a VM that reports another identity, or whose name is taken."""
    vm = Vm(vm_id=f"vm-{number}", name=f"web-{number}", conflict_at=since, withheld=is_taken)
    return vm if is_taken else replace(vm, reported_as=replace(vm.known_as, name="other"))


def kept(opened: list[Incident], at: float) -> Mapping[str, Incident]:
    """Return the incidents that the database keeps after these notices."""
    return {each.vm_id: replace(each, at=at) for each in opened}


def test_a_conflict_is_one_notice_and_one_end() -> None:
    """A conflict has one notice at once, and its end one after ten minutes at the earliest, because
    a VM may change what it reports.
    """
    vm = in_conflict(1)
    first = conflict_notices([vm], {}, _AT + 1)
    (notice,) = first.notices
    assert (notice.kind, notice.vm["name"]) == ("vm-conflict", "web-1")
    told = kept(first.opened, _AT + 1)
    assert not conflict_notices([vm], told, _AT + 2).notices
    assert not conflict_notices([], told, _AT + 300).ended
    assert not conflict_notices([in_conflict(1, since=_AT + 400)], told, _AT + 700).notices
    over = conflict_notices([], told, _AT + 700)
    assert [each.kind for each in over.notices] == ["vm-conflict-over"]
    assert over.notices[0].subject == notice.subject
    assert over.ended == ["vm-1"]


def test_a_vm_that_was_made_again_is_told_of_only_if_the_other_one_stays() -> None:
    """A VM that was made again under its name has a notice only if the old one is not silent after
    some minutes.
    """
    vm = in_conflict(1, is_taken=True)
    assert not conflict_notices([vm], {}, _AT + 200).notices
    (notice,) = conflict_notices([vm], {}, _AT + 400).notices
    assert "another VM bears the name" in notice.title


def test_four_hundred_that_move_at_once_are_one_notice_and_one_end() -> None:
    """Conflicts within a minute are one notice with a count and the first names, and have one
    end.
    """
    several = [in_conflict(number, since=_AT + number / 10) for number in range(400)]
    assert not conflict_notices(several, {}, _AT + 45).notices
    found = conflict_notices(several, {}, _AT + GATHER_SECONDS)
    (notice,) = found.notices
    assert "400 VMs" in notice.title
    told = kept(found.opened, _AT + GATHER_SECONDS)
    assert not conflict_notices(several[:1], told, _AT + 3600).notices
    (end,) = conflict_notices([], told, _AT + 3600).notices
    assert (end.subject, end.kind) == (notice.subject, "vm-conflict-over")
