"""The status of a running bridge, as the API and `seb status` show it."""

import shutil
from pathlib import Path

import pytest
from support.documents.documents import EVENT_ID, LATER, OTHER_ID, VM, body, entry, started
from support.page.monitored_bridge import MonitoredBridge

from bridge.config.approval import ApprovalSettings
from bridge.config.load import sink_spec
from bridge.imds.client import ImdsError
from bridge.store.database import StoreError

DOWN = ImdsError("nobody listens", reason="refused")


def test_before_anything_is_known_it_is_alive_and_not_ready(stage: MonitoredBridge) -> None:
    """A bridge without the VM identity is alive and not ready, and says what it waits for."""
    stage.front.note_try("IMDS gives no identity")
    told = stage.status.snapshot()
    assert (told["healthy"], told["ready"], told["looking"], told["vm"]) == (
        *(True, False, False),
        None,
    )
    assert told["imds"]["trouble"] == {"reason": "identity", "message": "IMDS gives no identity"}
    assert told["notReady"] == "IMDS gives no identity"
    assert told["store"]["writable"] is False


def test_after_a_poll_the_status_is_complete(stage: MonitoredBridge) -> None:
    """After a poll the status has the VM, its pending events, and the state of each sink."""
    stage.begin()
    assert not stage.status.snapshot()["looking"]
    assert stage.poll(body(entry(), incarnation=7))
    told = stage.status.snapshot()
    assert (told["ready"], told["looking"], told["notReady"]) == (True, True, None)
    assert told["vm"] == VM.to_wire()
    assert told["imds"]["incarnation"] == 7
    assert told["imds"]["lastSuccessAt"] == told["now"]
    assert [sink["backlog"] for sink in told["sinks"]] == [1]


def test_an_event_is_shown_as_its_record_has_it(stage: MonitoredBridge) -> None:
    """The status shows an event with the fields, the fingerprint and the notice of its record."""
    stage.begin()
    stage.poll(body(entry()))
    (event,) = stage.status.snapshot()["events"]
    data = stage.records()[-1].data
    assert data["event"].items() <= event.items()
    assert {name: event[name] for name in ("affectsThisVm", "revision", "fingerprint")} == {
        name: data[name] for name in ("affectsThisVm", "revision", "fingerprint")
    }
    assert event["noticeSeconds"] == data["observation"]["noticeSeconds"]


def test_the_nearest_event_comes_first(stage: MonitoredBridge) -> None:
    """Started events come first, then the others by their time."""
    stage.begin()
    stage.poll(body(entry(event_id="far", not_before=LATER), entry(), started(OTHER_ID)))
    assert [event["eventId"] for event in stage.status.snapshot()["events"]] == [
        *(OTHER_ID, EVENT_ID),
        "far",
    ]


def test_an_imds_that_is_away_is_not_ready_after_ten_seconds_and_alive_for_ever(
    stage: MonitoredBridge,
) -> None:
    """While IMDS does not answer, the bridge is not ready after ten seconds and stays alive,
    because a restart would not help.
    """
    stage.begin()
    stage.poll(body())
    assert not stage.poll(DOWN, after=9.0)
    assert stage.status.not_ready() is None
    for _ in range(50):
        stage.poll(DOWN, after=2.0)
        assert (stage.status.is_alive(), stage.status.not_ready()) == (True, "nobody listens")
    assert stage.status.snapshot()["imds"]["trouble"]["reason"] == "refused"


def test_a_loop_that_hangs_is_neither(stage: MonitoredBridge) -> None:
    """A bridge whose poll loop hangs is neither alive nor ready."""
    stage.begin()
    stage.poll(body())
    stage.clock.advance(17.0)
    assert (stage.status.is_alive(), stage.status.is_polling()) == (False, False)


def test_a_store_that_cannot_be_written_is_not_ready(stage: MonitoredBridge) -> None:
    """While the store cannot be written the bridge is not ready, although IMDS answers and no event
    changes.
    """
    stage.begin()
    stage.poll(body())
    stage.store.read("PRAGMA query_only=ON")
    with pytest.raises(StoreError):
        stage.store.commit(meta={"x": "y"})
    assert "readonly" in (stage.status.not_ready() or "")
    assert stage.poll(body()) is False
    assert "readonly" in (stage.status.not_ready() or "")
    assert stage.samples()["seb_store_writable"] == 0.0
    stage.store.read("PRAGMA query_only=OFF")
    assert stage.poll(body()) is True
    assert stage.status.not_ready() is None


def test_a_readiness_request_writes_nothing(stage: MonitoredBridge) -> None:
    """A request for readiness writes nothing to the store: polls and heartbeats do, and their
    result is kept.
    """
    stage.begin()
    stage.poll(body())
    before = stage.store.read("SELECT total_changes()")
    for _ in range(5):
        stage.poll(body(), after=6.0)
        assert stage.status.not_ready() is None
    assert stage.store.read("SELECT total_changes()") == before


def test_counting_a_backlog_serves_everybody_for_a_second(stage: MonitoredBridge) -> None:
    """One count of the backlog answers all requests of a second."""
    stage.begin()
    stage.poll(body())
    assert stage.status.backlogs()["file"].records == 0
    stage.poll(body(entry()), after=0.5)
    assert stage.status.backlogs()["file"].records == 0
    stage.clock.advance(1.0)
    assert stage.status.backlogs()["file"].records == 1


def test_a_file_of_keys_that_cannot_be_used_is_shown(tmp_path: Path) -> None:
    """While the file of trusted keys cannot be used, the status says why no command is accepted."""
    file = tmp_path / "trust.jwks"
    file.write_text('{"keys": []}')
    stage = MonitoredBridge(tmp_path / "state", approval=ApprovalSettings(trust=file))
    stage.begin()
    stage.poll(body())
    assert "has no key" in (stage.status.approval_trouble() or "")
    file.write_text("{}")
    stage.parts.approvals.note_poll()
    assert "no command is accepted: " in (stage.status.approval_trouble() or "")
    stage.close()


def test_no_secret_is_shown(tmp_path: Path) -> None:
    """The status shows no secret of a sink's settings, whatever the sink's state."""
    spec = sink_spec("webhook", {"url": "https://127.0.0.1/t0ken", "secret": "whsec_c2VjcmV0"})
    stage = MonitoredBridge(tmp_path, [spec])
    stage.begin()
    stage.poll(body(entry()))
    shown = str(stage.status.snapshot()) + stage.metrics.text().decode()
    assert [word for word in ("t0ken", "c2VjcmV0") if word in shown] == []
    stage.close()


def test_a_disk_without_room_is_not_ready(
    stage: MonitoredBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a full disk the bridge is not ready, although writes in place still succeed."""
    stage.begin()
    stage.poll(body())
    full = shutil.disk_usage(stage.settings.state_dir)._replace(free=0)
    monkeypatch.setattr("bridge.api.status.shutil.disk_usage", lambda _: full)
    assert "free some space" in (stage.status.not_ready() or "")
    assert stage.samples()["seb_store_writable"] == 0.0
    monkeypatch.undo()
    stage.poll(body(), after=6.0)
    assert stage.status.not_ready() is None
