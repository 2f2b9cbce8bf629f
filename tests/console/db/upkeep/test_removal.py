"""An admin removes what VMs have sent."""

from __future__ import annotations

from sqlalchemy import event
from support.console.intake import NOW, Intake
from support.console.records import FakeVm

from console.vms.retirement import forget


def test_what_a_vm_has_sent_is_removed_a_little_at_a_time(intake: Intake) -> None:
    """What a VM has sent is removed in small transactions, because other messages wait for each. An
    event that another VM reports too stays.
    """
    liar, peer = FakeVm(name="liar"), FakeVm(name="peer")
    ended = {"transition": "ended", "resources": ["web-1"], "now": NOW}
    intake.take(*(liar.event(f"E-{number}", **ended) for number in range(450)))  # type: ignore[arg-type]
    intake.take(liar.event("open", now=NOW), peer.event("E-7", **ended))  # type: ignore[arg-type]
    commits: list[object] = []

    def note(connection: object) -> None:
        commits.append(connection)

    event.listen(intake.database.writing, "commit", note)
    done = forget(intake.snapshots, [liar.vm_id, "other"], actor="a", reason="r")
    event.remove(intake.database.writing, "commit", note)
    assert done.removed == {liar.vm_id: 451}
    assert len(commits) >= 5
    with intake.snapshots.open() as snapshot:
        assert [each.event.event_id for each in snapshot.event_lists.ended_events()] == ["E-7"]
        assert snapshot.event_lists.open_events() == []
        assert snapshot.vms.find_vm(liar.vm_id) is None
