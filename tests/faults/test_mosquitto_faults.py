"""A Mosquitto that comes and goes, refuses, limits or is taken over, under a running bridge."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.faults.oracle import Figures
from support.faults.sink_broker import BrokerAndBridge, Intruder

from bridge.simulator.events import SimulatedEvent

Tell = Callable[[Figures], None]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[BrokerAndBridge]:
    """Where a broker and a bridge meet; both are ended with the test."""
    with BrokerAndBridge(tmp_path) as made:
        yield made


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.faults)])
def test_restarts(stage: BrokerAndBridge, tell: Tell, rounds: int) -> None:
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
def test_kills(stage: BrokerAndBridge, tell: Tell) -> None:
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
def test_a_broker_that_stands_still(stage: BrokerAndBridge, tell: Tell) -> None:
    """A broker that freezes is given up on; what it takes in once it goes on may come twice."""
    stage.run()
    stage.freeze()
    stage.scene.change()
    stage.wait_for_reason("has not acknowledged within 15 s")
    stage.thaw()
    stage.wait_for_everything()
    tell(stage.judge("mosquitto stands still"))


@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.faults)])
def test_a_session_that_is_taken_over(stage: BrokerAndBridge, tell: Tell, rounds: int) -> None:
    """Another client of the same id costs a reconnect, and no record."""
    stage.run()
    for _ in range(rounds):
        with Intruder(stage.broker, stage.client_id) as intruder:
            stage.scene.change(2)
            intruder.wait_until_thrown_out()
        stage.wait_for_everything()
    assert "no second bridge runs for this VM" in stage.scene.reasons("mqtt")[0]
    tell(stage.judge("mosquitto takeover", rounds=rounds))


@pytest.mark.faults
def test_one_message_in_flight(stage: BrokerAndBridge, tell: Tell) -> None:
    """A broker that takes one message at a time gets a burst in order, and never one too many."""
    stage.run(extra=["max_inflight_messages 1"])
    with stage.scene.simulator.change():
        for _ in range(60):
            stage.scene.simulator.announce(SimulatedEvent())
    stage.wait_for_everything()
    assert stage.scene.reasons("mqtt") == []
    tell(stage.judge("mosquitto Receive Maximum 1", rounds=1))
