"""The state of a run, as everybody reads it."""

from dataclasses import replace

from support.documents.documents import VM, body, entry
from support.page.monitored_bridge import MonitoredBridge

from wire.record import EVENT_SCHEDULED, EVENT_UPDATED


def test_a_new_identity_reaches_every_reader(stage: MonitoredBridge) -> None:
    """After a VM was resized, records, status and sinks have its new size at once."""
    stage.begin()
    resized = replace(VM, vm_size="Standard_D64s_v5")
    stage.parts.current.set_identity(resized)
    stage.poll(body(entry()))
    assert stage.parts.dispatcher.sink("file").context.vm == resized
    assert stage.status.snapshot()["vm"]["vmSize"] == "Standard_D64s_v5"
    assert [each.data["vm"]["vmSize"] for each in stage.records()] == ["Standard_D64s_v5"]


def test_a_new_name_counts_from_the_next_poll_on(stage: MonitoredBridge) -> None:
    """After IMDS has given the VM another name, nothing is approved before the next poll, which
    records whom the unchanged events name.
    """
    stage.begin()
    document = body(entry(resources=(VM.name,)))
    stage.poll(document)
    state = stage.parts.current
    assert state.is_current()
    state.set_identity(replace(VM, name="another"))
    assert not state.is_current()
    stage.poll(document)
    assert state.is_current()
    told = [(each.type, each.affects_this_vm) for each in stage.records() if each.event_id]
    assert told == [(EVENT_SCHEDULED, True), (EVENT_UPDATED, False)]
