"""Commands over MQTT: which are handed in, when the broker gets the acknowledgement, and the
limits.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.eventually import eventually
from support.mqtt.commands import CommandTaker, send
from support.mqtt.mosquitto import Mosquitto
from support.mqtt.mqtt_stub import SILENCE, MqttStub
from support.ports import free_port

from sinks.base import SinkContext, SinkError
from sinks.kinds.mqtt import MqttSink
from sinks.kinds.mqtt.client import plan_for
from sinks.kinds.mqtt.commands import AGAIN_SECONDS, MAX_UNSETTLED, CommandChannel
from sinks.kinds.mqtt.session import Session
from sinks.kinds.mqtt.settings import MqttSettings
from sinks.kinds.mqtt.subscription import Inbound
from sinks.testing import SAMPLE_VM, sample_context, sample_record
from wire.command import MAX_TOKEN_BYTES
from wire.record import APPROVAL, BRIDGE_STARTED

BASE = f"seb/v1/default/vm/{SAMPLE_VM.vm_id}"
TOPIC = f"{BASE}/command"


def context_with(source: CommandTaker, site: str = "default") -> SinkContext:
    """Return the context of a sink whose commands go to this source."""
    return replace(sample_context(), command=source, site=site)


def make(host: str, port: int, context: SinkContext, **settings: Any) -> MqttSink:
    """Return a sink that listens for commands."""
    told = {"kind": "mqtt", "host": host, "port": port, "commands": True, **settings}
    return MqttSink("ops", MqttSettings(**told), context)


@contextmanager
def listening(
    broker: Mosquitto, source: CommandTaker, *, site: str = "default", **settings: Any
) -> Iterator[MqttSink]:
    """An open sink whose commands go to the source."""
    sink = make(broker.host, broker.port, context_with(source, site), **settings)
    sink.open()
    try:
        yield sink
    finally:
        sink.close()


def test_the_status_says_whether_commands_are_taken(broker: Mosquitto) -> None:
    """The status says that commands are accepted if COMMANDS is true and the broker has granted the
    subscription; so does the last status.
    """

    def retained_status() -> list[tuple[str, bool]]:
        with broker.subscriber(f"{BASE}/status") as newcomer:
            found = [json.loads(each.payload) for each in newcomer.messages()]
        return [(each["status"], each["commands"]) for each in found]

    with listening(broker, CommandTaker()):
        assert retained_status() == [("online", True)]
    assert retained_status() == [("offline", True)]
    with listening(broker, CommandTaker(), commands=False):
        assert retained_status() == [("online", False)]


def test_commands_that_cannot_be_verified_are_not_promised(broker: Mosquitto) -> None:
    """The status says that commands are not accepted while the trust file cannot be read or IMDS
    has not confirmed the VM identity.
    """
    verifies = [False]
    context = replace(context_with(CommandTaker()), verifies=lambda: verifies[0])
    sink = make(broker.host, broker.port, context)
    with broker.subscriber(f"{BASE}/status") as plane:

        def reported_commands() -> list[bool]:
            return [json.loads(each.payload)["commands"] for each in plane.messages()]

        sink.open()
        for now in (True, True, False):
            verifies[0] = now
            sink.maintain()
        eventually(lambda: reported_commands()[-3:] == [False, True, False], what="the status")
        sink.close()


def test_a_sink_that_takes_commands_gets_receipts() -> None:
    """A sink that takes commands gets their receipts whatever its TYPES say; for another sink TYPES
    decides.
    """
    asked, plain = (
        make("127.0.0.1", 1, context_with(CommandTaker()), commands=commands, types=["seb.event.*"])
        for commands in (True, False)
    )
    wanted = [sink.accepts(APPROVAL, None) for sink in (asked, plain)]
    assert (wanted, asked.accepts(BRIDGE_STARTED, None)) == ([True, False], False)


def test_commands_that_the_broker_keeps_back_are_not_promised() -> None:
    """If the broker refuses the subscription, the status says that commands are not accepted."""
    published: list[bytes] = []

    def answer(_: int, payload: bytes) -> int:
        published.append(payload)
        return 0

    with MqttStub(granted=0x87, answer=answer) as stub:
        sink = make(stub.host, stub.port, context_with(CommandTaker()))
        sink.open()
        sink.close()
    assert [json.loads(each)["commands"] for each in published] == [False, False]


def test_commands_are_off_by_default(broker: Mosquitto) -> None:
    """Without COMMANDS=true the sink does not subscribe to commands."""
    source = CommandTaker()
    with listening(broker, source, commands=False):
        send(broker, TOPIC, b"a.b.c")
    with listening(broker, source):
        send(broker, TOPIC, b"d.e.f")
        source.wait_for(1)
    assert source.tokens == [b"d.e.f"]


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_a_command_is_acknowledged_once_it_is_settled(broker: Mosquitto, protocol: str) -> None:
    """The next connection brings the commands that were not settled and those that were sent in
    between, and none that was settled.
    """
    first, second, third = CommandTaker(), CommandTaker(), CommandTaker()
    with listening(broker, first, protocol=protocol) as sink:
        send(broker, TOPIC, b"settled", b"unsettled")
        first.wait_for(2)[0].on_settled()
        sink.deliver([sample_record()])  # a round trip behind the acknowledgement
    send(broker, TOPIC, b"meanwhile")
    with listening(broker, second, protocol=protocol) as sink:
        for message in second.wait_for(2):
            message.on_settled()
        sink.deliver([sample_record()])
    with listening(broker, third, protocol=protocol) as sink:
        sink.deliver([sample_record()])
    assert (second.tokens, third.tokens) == ([b"unsettled", b"meanwhile"], [])


@pytest.mark.parametrize(("protocol", "before"), [("5", []), ("3.1.1", [b"kept"])])
def test_a_retained_command_is_handed_in_as_retained(
    broker: Mosquitto, protocol: str, before: list[bytes]
) -> None:
    """With MQTT 5 the broker sends no retained command; with 3.1.1 it does, and the sink marks it
    as retained. A live command has the sink's name, and with MQTT 5 the flag that its publisher
    set.
    """
    send(broker, TOPIC, b"kept", retain=True)
    source = CommandTaker()
    with listening(broker, source, protocol=protocol):
        send(broker, TOPIC, b"live")
        send(broker, TOPIC, b"to keep", retain=True)
        messages = source.wait_for(len(before) + 2)
    assert source.tokens == [*before, b"live", b"to keep"]
    assert {message.channel for message in messages} == {"ops"}
    retained = [bool(before) for _ in before]
    assert [message.retained for message in messages] == [*retained, False, protocol == "5"]


def test_of_a_huge_command_only_the_front_is_handed_in(broker: Mosquitto) -> None:
    """Of a command that is too large, one byte more than the limit is handed in, so that the
    verifier recognizes it. The broker knows the largest packet and drops larger ones, and later
    commands arrive.
    """
    source, sizes = CommandTaker(), (MAX_TOKEN_BYTES, 1_000_000, 2_000_000, 5)
    with listening(broker, source):
        send(broker, TOPIC, *(b"x" * size for size in sizes))
        messages = source.wait_for(3)
    expected = [MAX_TOKEN_BYTES, MAX_TOKEN_BYTES + 1, 5]
    assert [len(message.token) for message in messages] == expected


def test_the_broker_sends_no_more_than_it_may(broker: Mosquitto) -> None:
    """The broker waits while 16 commands are not settled, and sends another one for each that
    is.
    """
    source = CommandTaker()
    with listening(broker, source) as sink:
        send(broker, TOPIC, *(b"%d" % n for n in range(40)))
        source.wait_for(16)
        sink.deliver([sample_record()])
        assert len(source.messages) == 16
        source.messages[0].on_settled()
        source.wait_for(17)


def test_a_bridge_that_is_full_gets_the_command_later(broker: Mosquitto) -> None:
    """A command that the bridge had no room for is kept, and handed in at the next `maintain`."""
    source = CommandTaker()
    source.full = True
    with listening(broker, source) as sink:
        send(broker, TOPIC, b"patient")
        source.wait_for_tries(1)
        assert source.tokens == []
        source.full = False
        sink.maintain()
        assert source.tokens == [b"patient"]
        sink.maintain()
    assert source.tokens == [b"patient"]


def test_room_is_used_as_soon_as_one_is_settled(broker: Mosquitto) -> None:
    """A waiting command is handed in as soon as another one is settled, without a call of
    `maintain`.
    """
    source = CommandTaker()
    with listening(broker, source):
        send(broker, TOPIC, b"first")
        (first,) = source.wait_for(1)
        source.full = True
        send(broker, TOPIC, b"second")
        source.wait_for_tries(2)
        source.full = False
        first.on_settled()
    assert source.tokens == [b"first", b"second"]


def test_over_3_1_1_too_much_is_dropped_and_blocks_nothing(tmp_path: Path) -> None:
    """With MQTT 3.1.1, commands above the sink's own limit are dropped, and the channel works
    on.
    """
    source, many, large = (
        CommandTaker(),
        2 * MAX_UNSETTLED // MAX_TOKEN_BYTES,
        b"x" * MAX_TOKEN_BYTES,
    )
    source.full = True
    with (
        Mosquitto(tmp_path / "b", extra=["max_inflight_messages 0"]) as broker,
        listening(broker, source, protocol="3.1.1") as sink,
    ):
        send(broker, TOPIC, *[large] * many)
        sink.deliver([sample_record()])
        source.full, source.settle = False, True
        sink.maintain()
        send(broker, TOPIC, b"after")
        while source.tokens[-1:] != [b"after"]:
            source.wait_for(len(source.tokens) + 1)
    kept = len(source.tokens) - 1
    assert kept * MAX_TOKEN_BYTES <= MAX_UNSETTLED
    assert 100 <= kept < many


def test_a_second_settlement_is_not_for_the_next_command_of_that_number() -> None:
    """A command that was handed in twice is settled twice, and the broker may have given its number
    to another command after the first time.
    """
    source, time = CommandTaker(), [0.0]
    settings = MqttSettings(kind="mqtt", host="127.0.0.1", port=free_port())
    session = Session(plan_for(settings, client_id="web-4"))
    channel = CommandChannel(
        session, topic=TOPIC, name="ops", source=source, monotonic=lambda: time[0]
    )
    channel.receive(_inbound(b"first", mid=1))
    time[0] += AGAIN_SECONDS
    channel.retry()
    first, again = source.messages
    first.on_settled()
    source.full = True
    channel.receive(_inbound(b"second", mid=1))
    again.on_settled()
    source.full = False
    channel.retry()
    assert source.tokens == [b"first", b"first", b"second"]


def _inbound(payload: bytes, *, mid: int) -> Inbound:
    return Inbound(topic=TOPIC, payload=payload, qos=1, retained=False, is_duplicate=False, mid=mid)


def test_a_command_at_qos_0_has_one_chance(broker: Mosquitto) -> None:
    """A command at QoS 0 is handed in, or dropped if too many wait, and never acknowledged."""
    source = CommandTaker()
    with listening(broker, source) as sink:
        send(broker, TOPIC, b"taken", qos=0)
        source.wait_for(1)[0].on_settled()
        source.full = True
        send(broker, TOPIC, b"dropped", qos=0)
        source.wait_for_tries(2)
        source.full = False
        sink.maintain()
    assert source.tokens == [b"taken"]


def test_settling_after_the_connection_is_gone_does_no_harm(broker: Mosquitto) -> None:
    """A command that is settled after the connection has ended is sent again by the broker, and the
    verifier knows its jti.
    """
    source, again = CommandTaker(), CommandTaker()
    with listening(broker, source):
        send(broker, TOPIC, b"late")
        (message,) = source.wait_for(1)
    message.on_settled()
    with listening(broker, again):
        again.wait_for(1)
    assert again.tokens == [b"late"]


def test_a_command_for_another_site_is_not_handed_in(broker: Mosquitto) -> None:
    """A command that a session of earlier settings still holds is not handed in, and does not block
    the channel.
    """
    with listening(broker, CommandTaker(), site="old"):
        pass
    old = TOPIC.replace("default", "old")
    send(broker, old, *(b"old" for _ in range(20)))
    source = CommandTaker()
    with listening(broker, source):
        send(broker, TOPIC, b"new")
        source.wait_for(1)
    assert source.tokens == [b"new"]


@pytest.mark.parametrize(
    ("granted", "said"),
    [
        (0x87, f"{TOPIC}: the broker refuses the subscription: not authorized (0x87); add to its"),
        # It would lose commands in silence.
        (0, "grants QoS 0 only; allow QoS 1"),
    ],
)
def test_a_refused_subscription_names_the_topic_and_the_line(granted: int, said: str) -> None:
    """If the broker refuses the subscription, `maintain` raises an error with the topic and the
    line of an ACL, and records are delivered nevertheless.
    """
    with MqttStub(granted=granted) as stub:
        sink = make(stub.host, stub.port, sample_context())
        sink.open()
        sink.deliver([sample_record()])
        with pytest.raises(SinkError) as caught:
            sink.maintain()
        sink.close()
    assert said in str(caught.value)
    assert caught.value.retry_after == 5.0


def test_a_subscription_without_an_answer_is_a_sink_error() -> None:
    """The wait for the SUBACK ends with an error."""

    class Impatient(MqttSink):
        STATUS_TIMEOUT = 0.2
        CLOSE_TIMEOUT = 0.1

    with MqttStub(granted=SILENCE) as stub:
        told = {"kind": "mqtt", "host": stub.host, "port": stub.port, "commands": True}
        sink = Impatient("ops", MqttSettings(**told), sample_context())
        with pytest.raises(SinkError, match=r"has not acknowledged within 0\.2 s"):
            sink.open()
        sink.close()


@pytest.mark.parametrize(("granted", "level"), [(1, "ok"), (0x87, "fail")])
def test_check_tells_whether_commands_may_come(granted: int, level: str) -> None:
    """`check` has a line about the command topic, with the line of an ACL as its remedy."""
    with MqttStub(granted=granted) as stub:
        found = make(stub.host, stub.port, sample_context()).check()
    assert level == found[-1].level
    assert TOPIC in found[-1].text
    assert (found[-1].remedy is None) == (level == "ok")


def test_a_packet_that_is_too_large_is_not_read() -> None:
    """A broker that announces a packet of 200 MB, whatever we allow, loses the connection before
    that packet.
    """
    huge = b"\x30" + b"\xff\xff\xff\x64"
    with MqttStub(greeting=huge) as stub:
        sink = make(stub.host, stub.port, context_with(CommandTaker()))
        with pytest.raises(SinkError, match="a packet of 211,812,351 bytes, and at most 1,114,112"):
            sink.open()
        sink.close()


def test_a_session_with_a_command_that_is_too_large_begins_anew(broker: Mosquitto) -> None:
    """With MQTT 3.1.1 nobody tells the broker how large a packet may be. One that is too large, in
    the session that the broker keeps, ends one connection; later commands arrive.
    """
    source = CommandTaker()
    with listening(broker, source, protocol="3.1.1") as sink:
        send(broker, TOPIC, b"x" * 2_000_000)
        eventually(lambda: _is_lost(sink), what="the end of the connection")
        sink.close()
        sink.open()
        sink.maintain()
        send(broker, TOPIC, b"a token")
        eventually(lambda: source.tokens == [b"a token"], what="the command")


def _is_lost(sink: MqttSink) -> bool:
    """Whether the connection of a sink has ended because of a packet."""
    try:
        sink.maintain()
    except SinkError as error:
        return "a packet of" in str(error)
    return False
