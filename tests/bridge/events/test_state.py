"""The state of a run, as everybody reads it."""

from dataclasses import replace

from support.documents.documents import VM, body, entry
from support.page.monitored_bridge import MonitoredBridge


def test_a_new_identity_reaches_every_reader(stage: MonitoredBridge) -> None:
    """After a VM was resized, records, status and sinks have its new size at once."""
    stage.begin()
    resized = replace(VM, vm_size="Standard_D64s_v5")
    stage.parts.state.set_identity(resized)
    stage.poll(body(entry()))
    assert stage.parts.dispatcher.sink("file").context.vm == resized
    assert stage.status.snapshot()["vm"]["vmSize"] == "Standard_D64s_v5"
    assert [each.data["vm"]["vmSize"] for each in stage.records()] == ["Standard_D64s_v5"]
