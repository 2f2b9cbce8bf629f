"""A Mosquitto that comes and goes, refuses, limits or is taken over, under a running bridge."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.faults.oracle import Figures
from support.faults.sink_broker import READER, USER, Intruder, Stage, acl_for
from support.sinks.throwaway_ca import ThrowawayCa

from bridge.simulator.events import SimulatedEvent

Tell = Callable[[Figures], None]
OLD, NEW = "the-old-password", "the-new-password"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Where a broker and a bridge meet; both are ended with the test."""
    with Stage(tmp_path) as made:
        yield made


@pytest.mark.parametrize("rounds", [2, pytest.param(10, marks=pytest.mark.faults)])
def test_restarts(stage: Stage, tell: Tell, rounds: int) -> None:
    """A broker that shuts down in the middle of things, time and again, gets everything."""
    broker = stage.run()
    for _ in range(rounds):
        with ThreadPoolExecutor() as beside:
            changes = beside.submit(stage.scene.change)
            broker.stop()
            broker.start()
            changes.result()
    stage.wait_for_everything()
    tell(stage.judge("mosquitto restart", rounds=rounds))


@pytest.mark.faults
def test_kills(stage: Stage, tell: Tell) -> None:
    """So does one that is killed: what it had acknowledged and saved is not asked of it again."""
    broker = stage.run()
    for _ in range(6):
        stage.scene.change(2)
        stage.wait_for_everything()
        stage.save()
        broker.kill()
        stage.scene.change(2)
        broker.start()
        stage.wait_for_everything()
    tell(stage.judge("mosquitto kill", rounds=6))


@pytest.mark.faults
def test_a_broker_that_stands_still(stage: Stage, tell: Tell) -> None:
    """A broker that freezes is given up on; what it takes in once it goes on may come twice."""
    stage.run()
    stage.freeze()
    stage.scene.change()
    stage.wait_for_reason("has not acknowledged within 15 s")
    stage.thaw()
    stage.wait_for_everything()
    tell(stage.judge("mosquitto stands still"))


def test_a_session_that_is_taken_over(stage: Stage, tell: Tell) -> None:
    """Another client of the same id costs a reconnect, and no record."""
    stage.run()
    for _ in range(3):
        with Intruder(stage.broker, stage.client_id) as intruder:
            stage.scene.change(2)
            intruder.wait_until_thrown_out()
        stage.wait_for_everything()
    assert "no second bridge runs for this VM" in stage.scene.reasons("mqtt")[0]
    tell(stage.judge("mosquitto takeover", rounds=3))


def test_a_publish_that_is_refused(stage: Stage, tell: Tell) -> None:
    """Records that the ACL refuses wait, are not dead, and go out once it is mended."""
    topics = ("event", "state", "status", "receipt")
    stage.start_broker(users={USER: OLD, READER: OLD}, acl=acl_for(*topics))
    stage.subscribe(username=READER)
    stage.start_bridge({"username": USER, "password": OLD})
    stage.wait_for_everything()
    stage.allow("state", "status")
    stage.scene.change()
    stage.wait_for_reason("/event: not authorized (0x87)")
    stage.allow(*topics)
    stage.wait_for_everything()
    tell(stage.judge("mosquitto ACL"))


@pytest.mark.faults
def test_a_password_that_is_rotated(stage: Stage, tmp_path: Path, tell: Tell) -> None:
    """A new password is taken from its file at the next try, without a restart."""
    file = tmp_path / "password"
    file.write_text(OLD)
    stage.start_broker(users={USER: OLD, READER: OLD})
    stage.subscribe(username=READER)
    stage.start_bridge({"username": USER, "password_file": str(file)})
    stage.wait_for_everything()
    stage.change_password(NEW)
    stage.scene.change()
    stage.wait_for_reason("PASSWORD_FILE")
    file.write_text(NEW)
    stage.wait_for_everything()
    errors = stage.scene.bridge.errors
    assert (OLD in errors, NEW in errors) == (False, False)
    tell(stage.judge("mosquitto password rotated"))


@pytest.mark.faults
def test_a_certificate_that_has_expired(stage: Stage, tmp_path: Path, tell: Tell) -> None:
    """A broker whose certificate has expired gets nothing, not even a name, until it is renewed."""
    ca = ThrowawayCa(tmp_path / "ca")
    broker = stage.start_broker(tls=ca.server())
    stage.subscribe(tls=ssl.create_default_context(cafile=ca.cert))
    broker.stop()
    ca.server(days=-1)
    broker.start()
    stage.start_bridge({"tls__ca": str(ca.cert)})
    stage.wait_for_reason("certificate has expired")
    stage.scene.change()
    assert stage.client_id not in broker.log
    broker.stop()
    ca.server()
    broker.start()
    stage.wait_for_everything()
    tell(stage.judge("mosquitto certificate expired"))


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("max_packet_size", "raise the broker's maximum packet size"),
        # Five tries, for the broker blames none: it ends the connection.
        pytest.param("message_size_limit", "raise that", marks=pytest.mark.faults),
    ],
)
def test_a_small_maximum_packet_size(stage: Stage, tell: Tell, limit: str, words: str) -> None:
    """A record that is too large is dead and told so, its neighbours are not; retried, it comes."""
    stage.run(extra=[f"{limit} 6000"])
    simulator = stage.scene.simulator
    with simulator.change():
        for length in (10, 6000, 20):
            simulator.announce(SimulatedEvent(description="x" * length))
    stage.wait_for_everything()
    (dead,) = stage.scene.ask("outbox.list")["dead"]
    assert (dead["sink"], dead["record_type"]) == ("mqtt", "seb.event.scheduled.v1")
    assert words in dead["reason"]
    stage.change_limit(f"{limit} 6000", f"{limit} 60000")
    stage.wait_for_everything()
    stage.scene.retry("mqtt")
    stage.wait_for_everything()
    tell(stage.judge(f"mosquitto {limit}"))


@pytest.mark.faults
def test_a_state_that_is_too_large(stage: Stage, tell: Tell) -> None:
    """Where only the list of pending events is too large, the sink says so, and records go out."""
    stage.run(extra=["max_packet_size 8000"])
    simulator = stage.scene.simulator
    with simulator.change():
        pending = [simulator.announce(SimulatedEvent()) for _ in range(60)]
    stage.wait_for_reason("/state: the message is larger than the broker takes (0x95)")
    stage.scene.change(1)
    stage.wait_for_everything()
    with simulator.change():
        for event in pending:
            simulator.end_event(event.event_id)
    stage.wait_for_everything()
    stage.scene.bridge.wait_for_log("sink_up", count=4)
    tell(stage.judge("mosquitto state too large"))


def test_one_message_in_flight(stage: Stage, tell: Tell) -> None:
    """A broker that takes one message at a time gets a burst in order, and never one too many."""
    stage.run(extra=["max_inflight_messages 1"])
    with stage.scene.simulator.change():
        for _ in range(60):
            stage.scene.simulator.announce(SimulatedEvent())
    stage.wait_for_everything()
    assert stage.scene.reasons("mqtt") == []
    tell(stage.judge("mosquitto Receive Maximum 1", rounds=1))
