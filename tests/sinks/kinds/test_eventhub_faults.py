"""The Event Hubs sink with a hub that refuses, cuts off or does not answer."""

import time

import pytest
from support.amqp.cases import (
    HUB,
    abandoned,
    bodies,
    everything_about,
    records,
    sink_for,
)
from support.amqp.server import SHARED_KEY, EventHubServer, HubFault

from sinks.base import SinkError, SinkRejected
from sinks.kinds.eventhub import EventHubSink
from sinks.testing import sample_record

# Misbehaviour.


@pytest.mark.parametrize("fault", [HubFault.REJECT, HubFault.DETACH, HubFault.CLOSE])
@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("com.microsoft:server-busy", "throttling"),
        ("amqp:resource-limit-exceeded", "quota"),
        ("com.microsoft:entity-disabled", "disabled"),
        ("amqp:unauthorized-access", "refused"),
        ("amqp:not-found", "does not exist"),
        ("amqp:internal-error", "answered with an error"),
    ],
)
def test_an_error_is_named(
    hub: EventHubServer, hub_sink: EventHubSink, fault: HubFault, condition: str, words: str
) -> None:
    """The message of an error has its condition and a remedy, and none of the hub's own text."""
    hub.misbehave(fault, condition=condition, description=f"sig={SHARED_KEY}")
    with pytest.raises(SinkError, match=words) as caught:
        hub_sink.deliver([sample_record()])
    assert condition in str(caught.value)
    busy = condition.endswith("busy") and fault is not HubFault.CLOSE
    assert not busy or caught.value.retry_after == 4.0
    assert SHARED_KEY not in everything_about(caught.value)


def test_a_malformed_record_is_found_in_its_batch(
    hub: EventHubServer, hub_sink: EventHubSink
) -> None:
    """A condition that a record itself causes rejects that record, after five tries."""
    hub.misbehave(HubFault.REJECT, condition="com.microsoft:argument-error")
    with pytest.raises(SinkRejected) as caught:
        hub_sink.deliver(records(3))
    assert (caught.value.delivered, caught.value.tries) == (0, 5)


def test_a_rejection_keeps_the_link(hub: EventHubServer, hub_sink: EventHubSink) -> None:
    """A throttled namespace gets no new connections because of a rejection."""
    hub.misbehave(HubFault.REJECT, condition="com.microsoft:server-busy", times=1)
    with pytest.raises(SinkError):
        hub_sink.deliver([sample_record()])
    hub_sink.deliver([sample_record()])
    assert hub.accepted == 1


@pytest.mark.parametrize("fault", [HubFault.DETACH, HubFault.CLOSE, HubFault.DROP])
def test_a_link_that_ends_once_is_opened_again(
    hub: EventHubServer, hub_sink: EventHubSink, fault: HubFault
) -> None:
    """A link that the hub ended is opened again, without an error."""
    hub.misbehave(fault, condition="amqp:link:detach-forced", times=1)
    hub_sink.deliver([sample_record()])
    assert [sample_record().body] == bodies(hub.messages(HUB))


def test_a_link_that_always_ends_is_an_error(hub: EventHubServer, hub_sink: EventHubSink) -> None:
    """If the hub ends every link, the sink raises after the second one."""
    hub.misbehave(HubFault.DETACH, condition="amqp:link:detach-forced")
    with pytest.raises(SinkError, match="detach-forced"):
        hub_sink.deliver([sample_record()])
    assert hub.accepted == 2


def test_an_idle_detach_costs_nothing(hub: EventHubServer, hub_sink: EventHubSink) -> None:
    """After the hub detached an idle link, the next record goes through at once."""
    first, second = records(2)
    hub_sink.deliver([first])
    hub.detach_all()
    hub_sink.deliver([second])
    assert [first.body, second.body] == bodies(hub.messages(HUB))


def test_an_idle_sink_finds_the_detach_itself(
    hub: EventHubServer, hub_sink: EventHubSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`maintain` notices that the hub ended an idle link, and opens a new one before the next
    record.
    """
    monkeypatch.setattr("sinks.kinds.eventhub.sink.PUMP_SECONDS", 0.0)
    hub.detach_all()
    for _ in range(3):
        hub_sink.maintain()
    assert hub.accepted == 2
    hub_sink.deliver([sample_record()])
    assert hub.accepted == 2


def test_maintain_is_rare(hub: EventHubServer, hub_sink: EventHubSink) -> None:
    """`maintain` reads nothing right after a delivery, so that it costs no time."""
    hub_sink.deliver([sample_record()])
    begun = time.monotonic()
    for _ in range(100):
        hub_sink.maintain()
    assert time.monotonic() - begun < 2.0


@pytest.mark.parametrize(("fault", "stored"), [(HubFault.NO_ACK, 0), (HubFault.LOST_ACK, 1)])
def test_a_missing_acknowledgement_is_an_error(
    hub: EventHubServer,
    hub_sink: EventHubSink,
    monkeypatch: pytest.MonkeyPatch,
    fault: HubFault,
    stored: int,
) -> None:
    """A send without an answer ends in time with an error, and the sink does not repeat it by
    itself.
    """
    monkeypatch.setattr("sinks.kinds.eventhub.sink.SEND_SECONDS", 0.5)
    hub.misbehave(fault)
    with pytest.raises(SinkError, match="no answer in time"):
        hub_sink.deliver([sample_record()])
    assert stored == len(hub.messages(HUB))
    hub.heal()
    hub_sink.deliver([sample_record()])
    assert {sample_record().body} == set(bodies(hub.messages(HUB)))


@pytest.mark.parametrize(("status", "words"), [(401, "access was refused"), (404, "not exist")])
def test_a_refused_token_is_an_error(hub: EventHubServer, status: int, words: str) -> None:
    """The error about a token that the hub refuses says so, and what to check."""
    hub.misbehave(HubFault.CBS_STATUS, status=status)
    with pytest.raises(SinkError, match=words) as caught:
        sink_for(hub).open()
    assert f"status {status}" in str(caught.value)
    assert SHARED_KEY not in everything_about(caught.value)


@pytest.mark.parametrize("fault", [HubFault.REFUSE_ATTACH, HubFault.DETACH_AT_ONCE])
def test_a_hub_that_is_missing_is_an_error(hub: EventHubServer, fault: HubFault) -> None:
    """`open` raises an error that names the hub if the hub does not exist."""
    hub.misbehave(fault, condition="amqp:not-found")
    with pytest.raises(SinkError, match=f"hub {HUB} at 127.0.0.1:{hub.port}: the hub does not"):
        sink_for(hub).open()


# A stuck thread.


@pytest.mark.parametrize("fault", [HubFault.SILENT, HubFault.NO_CBS, HubFault.NO_ATTACH])
def test_an_abandoned_open_ends(hub: EventHubServer, fault: HubFault) -> None:
    """A thread that waits in `open` for a silent hub ends soon after `abort`, and `close` does not
    wait for the hub.
    """
    sink = sink_for(hub)
    hub.misbehave(fault)
    assert isinstance(abandoned(hub, sink, sink.open), SinkError)
    assert hub.accepted == 1
    begun = time.monotonic()
    sink.close()
    assert time.monotonic() - begun < 12.0


@pytest.mark.parametrize("fault", [HubFault.NO_ACK, HubFault.RELEASE])
def test_an_abandoned_delivery_ends(
    hub: EventHubServer, hub_sink: EventHubSink, fault: HubFault
) -> None:
    """A thread that waits for an acknowledgement ends soon after `abort`."""
    hub.misbehave(fault)
    ended = abandoned(hub, hub_sink, lambda: hub_sink.deliver([sample_record()]))
    assert isinstance(ended, SinkError)


def test_an_aborted_sink_never_connects_again(hub: EventHubServer, hub_sink: EventHubSink) -> None:
    """After `abort`, a call that was between two steps raises and opens no connection."""
    hub_sink.abort()
    with pytest.raises(SinkError):
        hub_sink.deliver([sample_record()])
    assert hub.accepted == 1
