"""The sink that prepares: what its program has done counts once, and only if it was not cut."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands.preparing_bridge import PreparingBridge
from support.documents.documents import LATER, body, entry
from support.sinks.scripted_sink import Script, ScriptedSink

from bridge.preparation.sink import PreparingSink
from bridge.store.database import StoreError
from sinks.base import SinkError, SinkRejected, SinkSettings
from sinks.samples import sample_context


@pytest.fixture
def preparing(tmp_path: Path) -> Iterator[PreparingBridge]:
    """A bridge that has asked its sink to prepare for an event."""
    made = PreparingBridge(tmp_path)
    made.poll(body(entry()))
    (known,) = made.current.events.values()
    made.preparations.ask(known, "command:1")
    yield made
    made.store.close()


def wrapped(preparing: PreparingBridge, script: Script) -> PreparingSink:
    """Return the sink that prepares, which does what the script says."""
    ScriptedSink.scripts["drain"] = script
    settings = SinkSettings(kind="scripted")
    return PreparingSink(ScriptedSink("drain", settings, sample_context()), preparing.preparations)


def test_a_full_disk_runs_nothing_twice(preparing: PreparingBridge) -> None:
    """If a result cannot be written, the next delivery writes it without another run: of a
    preparation, and of the end of its event.
    """
    script = Script()
    sink = wrapped(preparing, script)
    request = preparing.records()[-1]
    for state in ("prepared", "recovered"):
        preparing.store.read("PRAGMA query_only=ON")
        for _ in range(3):
            with pytest.raises(StoreError):
                sink.deliver([request])
        preparing.store.read("PRAGMA query_only=OFF")
        sink.deliver([request])
        assert preparing.records()[-1].data["state"] == state
        preparing.poll(body(incarnation=2))
        request = preparing.records()[-1]
    assert script.calls.count("deliver") == 2


def test_a_full_disk_repeats_no_refusal(preparing: PreparingBridge) -> None:
    """If it cannot be written that the program gave up, the next delivery writes it without
    another run.
    """
    script = Script()
    script.on_deliver = [SinkRejected("no")]
    sink = wrapped(preparing, script)
    request = preparing.records()[-1]
    preparing.store.read("PRAGMA query_only=ON")
    for _ in range(3):
        with pytest.raises(StoreError):
            sink.deliver([request])
    preparing.store.read("PRAGMA query_only=OFF")
    with pytest.raises(SinkRejected):
        sink.deliver([request])
    assert preparing.states() == ["failed"]
    assert script.calls.count("deliver") == 1


def test_a_run_that_was_cut_on_a_full_disk_undoes_earlier_preparations(
    preparing: PreparingBridge,
) -> None:
    """If a run ends in part, and that cannot be written, the states for which the VM was prepared
    before count no more, although the next run ends with 0.
    """
    script = Script()
    sink = wrapped(preparing, script)
    sink.deliver([preparing.records()[-1]])
    preparing.poll(body(entry(not_before=LATER), incarnation=2))
    (known,) = preparing.current.events.values()
    preparing.preparations.ask(known, "command:2")
    request = preparing.records()[-1]
    script.on_deliver = [SinkError("exit 1")]
    preparing.store.read("PRAGMA query_only=ON")
    with pytest.raises(StoreError):
        sink.deliver([request])
    preparing.store.read("PRAGMA query_only=OFF")
    sink.deliver([request])
    assert preparing.poll(body(entry(), incarnation=3)) == ["none"]


def test_a_call_that_was_cut_has_prepared_nothing(preparing: PreparingBridge) -> None:
    """A call that succeeds after it was cut does not count: the sink that is made in its place is
    at work by then.
    """
    script = Script()
    sink = wrapped(preparing, script)
    script.on_deliver = [sink.abort]
    with pytest.raises(SinkError):
        sink.deliver([preparing.records()[-1]])
    assert preparing.states() == ["preparing"]
