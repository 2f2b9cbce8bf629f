"""The MQTT sink and the broker's access rules: passwords, ACLs, TLS, limits, and the settings for
them.
"""

import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto
from support.sinks.throwaway_ca import ThrowawayCa

from sinks.base import SinkContext, SinkError, SinkRejected
from sinks.kinds.mqtt import MqttSink
from sinks.kinds.mqtt.settings import MqttSettings
from sinks.samples import sample_event, sample_pending
from sinks.testing import SAMPLE_VM, sample_context, sample_record

BASE = f"seb/v1/default/vm/{SAMPLE_VM.vm_id}"
PASSWORD = "correct horse battery staple"
LARGE = sample_record(2, description="x" * 5000)


def make(broker: Mosquitto, *, context: SinkContext | None = None, **settings: Any) -> MqttSink:
    """Return a sink for the broker."""
    told = {"kind": "mqtt", "host": broker.host, "port": broker.port, **settings}
    return MqttSink("ops", MqttSettings(**told), context or sample_context())


def opening_fails(sink: MqttSink) -> str:
    """Return the message of the `SinkError` that opening raises; `check` has to fail too."""
    failed = [line for line in sink.check() if line.level == "fail"]
    assert [line.remedy for line in failed if line.remedy]
    with pytest.raises(SinkError) as caught:
        sink.open()
    sink.close()
    return str(caught.value)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker with one user."""
    with Mosquitto(tmp_path / "broker", users={"bridge": PASSWORD}) as broker:
        yield broker


def test_a_wrong_password_is_a_sink_error(guarded: Mosquitto) -> None:
    """The error about a wrong password says what to check, and shows neither the wrong nor the
    right password.
    """
    message = opening_fails(make(guarded, username="bridge", password="not-the-password"))
    assert "PASSWORD" in message
    assert "not-the-password" not in message


def test_a_password_file_is_read_at_each_connect(guarded: Mosquitto, tmp_path: Path) -> None:
    """A password that was replaced in its file is used at the next connection; the error about a
    missing file names it.
    """
    file = tmp_path / "password"
    sink = make(guarded, username="bridge", password_file=str(file))
    assert str(file) in opening_fails(sink)
    file.write_text("old\n")
    opening_fails(sink)
    file.write_text(f"{PASSWORD}\n")
    sink.open()
    sink.deliver([sample_record()])
    sink.close()


def test_what_the_acl_denies_is_a_sink_error(tmp_path: Path) -> None:
    """If the ACL denies a topic, the error names it with the remedy, and the record is neither
    delivered nor dead. If it denies the status, the sink does not open.
    """
    users = {"bridge": PASSWORD}
    acl = ["user bridge", f"topic write {BASE}/status", f"topic write {BASE}/state"]
    with Mosquitto(tmp_path / "broker", users=users, acl=acl) as broker:
        sink = make(broker, username="bridge", password=PASSWORD)
        sink.open()
        with pytest.raises(SinkError, match=rf"^{BASE}/event: not authorized .*ACL") as caught:
            sink.deliver([sample_record(1), sample_record(2)])
        sink.close()
    assert caught.value.delivered == 0
    with Mosquitto(tmp_path / "other", users=users, acl=["user bridge"]) as broker:
        sink = make(broker, username="bridge", password=PASSWORD)
        with pytest.raises(SinkError, match="ACL"):
            sink.open()
        sink.close()


def test_tls_with_a_private_ca(tmp_path: Path, ca: ThrowawayCa, guarded: Mosquitto) -> None:
    """The sink trusts the broker with the CA's file, and `check` names the version of TLS. With
    another CA, without one, or with TLS at one side only, the error says what to set.
    """
    other = ThrowawayCa(tmp_path / "other", "another CA")
    with Mosquitto(tmp_path / "secured", tls=ca.server()) as broker:
        trusting = ssl.create_default_context(cafile=ca.cert)
        sink = make(broker, tls={"ca": str(ca.cert)})
        with broker.subscriber(f"{BASE}/event", tls=trusting) as subscriber:
            sink.open()
            sink.deliver([sample_record()])
            assert [sample_record().body] == subscriber.payloads()
        (line,) = sink.check()
        assert "TLSv1.3" in line.text
        sink.close()
        assert "set TLS__CA" in opening_fails(make(broker, tls={"ca": str(other.cert)}))
        assert "set TLS__CA" in opening_fails(make(broker, tls={}))
        assert "PORT" in opening_fails(make(broker))
    assert "PORT" in opening_fails(make(guarded, tls={"ca": str(ca.cert)}))
    with Mosquitto(tmp_path / "somebody", tls=ca.client("somebody")) as broker:
        problem = opening_fails(make(broker, tls={"ca": str(ca.cert)}))
    assert "certificate is not trusted" in problem


def test_a_client_certificate_instead_of_a_password(tmp_path: Path, ca: ThrowawayCa) -> None:
    """The broker accepts the bridge by its certificate; without one, the error says what is
    missing.
    """
    pair = ca.client("bridge")
    trust = {"ca": str(ca.cert)}
    with Mosquitto(tmp_path / "broker", tls=ca.server(), client_ca=ca.cert) as broker:
        sink = make(broker, tls={**trust, "cert": str(pair.cert), "key": str(pair.key)})
        sink.open()
        sink.deliver([sample_record()])
        sink.close()
        assert "TLS__CERT" in opening_fails(make(broker, tls=trust))


@pytest.mark.parametrize("field", ["ca", "cert"])
def test_a_file_that_is_no_certificate_is_named(
    guarded: Mosquitto, tmp_path: Path, field: str
) -> None:
    """The error about a file that is missing or no certificate names the file."""
    file = tmp_path / "some.pem"
    assert f"{file} cannot be used" in opening_fails(make(guarded, tls={field: str(file)}))
    file.write_text("not a certificate")
    assert f"{file} cannot be used" in opening_fails(make(guarded, tls={field: str(file)}))


@pytest.mark.parametrize("limit", ["max_packet_size 3000", "message_size_limit 3000"])
def test_a_record_that_is_too_large_is_rejected(tmp_path: Path, limit: str) -> None:
    """A record above one of Mosquitto's two size limits is rejected, and no other record."""
    with Mosquitto(tmp_path / "broker", extra=[limit]) as broker:
        sink = make(broker)
        sink.open()
        with pytest.raises(SinkRejected, match=r"max_packet_size|maximum packet size") as caught:
            sink.deliver([sample_record(1), LARGE, sample_record(3)])
        sink.open()
        sink.deliver([sample_record(3)])
        sink.close()
    assert caught.value.delivered == 1


@pytest.mark.parametrize(
    ("limit", "protocol"),
    [
        ("max_packet_size 3000", "5"),
        ("message_size_limit 3000", "5"),
        ("max_packet_size 3000", "3.1.1"),
    ],
)
def test_a_state_that_is_too_large_leaves_no_old_one(
    tmp_path: Path, limit: str, protocol: str
) -> None:
    """If the broker does not take the state because of its size, no state is retained; once it fits
    again, it is.
    """
    few = (sample_pending(sample_event("E1")),)
    pending = few
    context = replace(sample_context(), pending=lambda: pending)
    with (
        Mosquitto(tmp_path / "broker", extra=[limit]) as broker,
        broker.subscriber(f"{BASE}/state") as subscriber,
    ):
        sink = make(broker, context=context, protocol=protocol)

        def shown(is_it: Callable[[bytes], bool]) -> bool:
            try:
                sink.maintain()
            except SinkError as error:
                if not error.stays_open:
                    sink.close()
                    sink.open()
            payloads = subscriber.payloads()
            return bool(payloads) and is_it(payloads[-1])

        sink.open()
        eventually(lambda: shown(lambda payload: b"E1" in payload), what="the state")
        pending = tuple(sample_pending(sample_event(f"OTHER-{n}")) for n in range(100))
        eventually(lambda: shown(lambda payload: payload == b""), what="no state", timeout=40)
        with broker.subscriber(f"{BASE}/state") as later:
            pending = few
            eventually(lambda: shown(lambda payload: b"E1" in payload), what="the state again")
            assert [payload for payload in later.payloads() if b"OTHER" in payload] == []
        sink.close()


def test_mqtt_3_1_1_delivers_and_warns(tmp_path: Path) -> None:
    """With MQTT 3.1.1 the same bytes are delivered, and `check` says what is missing."""
    with (
        Mosquitto(tmp_path / "broker") as broker,
        broker.subscriber(f"{BASE}/event") as subscriber,
    ):
        sink = make(broker, protocol="3.1.1")
        assert [line.level for line in sink.check()] == ["warn", "ok"]
        sink.open()
        sink.deliver([sample_record(1), sample_record(2)])
        sink.maintain()
        sink.close()
        assert [sample_record(1).body, sample_record(2).body] == subscriber.payloads()


def test_a_check_leaves_a_running_bridge_alone(guarded: Mosquitto) -> None:
    """`check` beside a running sink neither takes over its session nor publishes anything."""
    running = make(guarded, username="bridge", password=PASSWORD)
    running.open()
    with guarded.subscriber("#") as subscriber:
        before = len(subscriber.messages())
        beside = make(guarded, username="bridge", password=PASSWORD)
        assert [line.level for line in beside.check()] == ["ok"]
        assert before == len(subscriber.messages())
    running.deliver([sample_record()])
    running.close()


@pytest.mark.parametrize("password", [{"password": "x"}, {"password_file": "/no/such/file"}])
def test_a_password_in_clear_to_another_host_is_warned_of(password: dict[str, str]) -> None:
    """`check` warns of a password without TLS, unless the broker is on this machine."""
    told: dict[str, Any] = {"kind": "mqtt", "host": "no.invalid", "username": "u", **password}
    clear = MqttSink("ops", MqttSettings(**told), sample_context())
    assert [line.level for line in clear.check()] == ["warn", "fail"]
    told["port"] = 8883
    encrypted = MqttSink("ops", MqttSettings(**told), sample_context())
    assert [line.level for line in encrypted.check()] == ["fail"]


@pytest.mark.parametrize("site", ["a/b", "a+", "#", "", "a\0b", "a\nb", "\ud800"])
def test_a_site_that_is_no_topic_level_is_refused(guarded: Mosquitto, site: str) -> None:
    """A site with characters of a topic filter is refused before any connection is made."""
    context = replace(sample_context(), site=site)
    settings = MqttSettings(kind="mqtt", host=guarded.host, port=guarded.port)
    message = opening_fails(MqttSink("ops", settings, context))
    assert message.startswith("SEB_SITE is ")


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": "mqtt://broker"},
        {"host": "broker:1883"},
        {"host": "two words"},
        {"host": ""},
        {"host": "broker", "port": "0"},
        {"host": "broker", "protocol": "3"},
        {"host": "broker", "password": PASSWORD},
        {"host": "broker", "username": "u", "password": PASSWORD, "password_file": "f"},
        {"host": "broker", "tls": {"key": "k"}},
        {"host": "broker", "tls": {"insecure": "true"}},
        {"host": "broker", "proxy": f"socks5://vm:{PASSWORD}@x:1080"},
        {"host": "broker", "transport": "udp"},
        {"host": "broker", "transport": "websocket", "path": "mqtt"},
        {},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    """A wrong setting is an error that shows no secret."""
    with pytest.raises(ValidationError) as caught:
        MqttSettings(kind="mqtt", **wrong)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, (1883, False)),
        ({"tls": {}}, (8883, True)),
        ({"tls": {"ca": "f"}, "port": "1884"}, (1884, True)),
        ({"port": "8883"}, (8883, True)),
        ({"port": "1884"}, (1884, False)),
        ({"transport": "websocket"}, (80, False)),
        ({"transport": "websocket", "tls": {}}, (443, True)),
        ({"transport": "websocket", "port": 443}, (443, True)),
        ({"transport": "websocket", "port": 9001}, (9001, False)),
    ],
)
def test_the_port_and_tls_follow_each_other(
    told: dict[str, Any], expected: tuple[int, bool]
) -> None:
    """Port 8883 or any TLS setting turns TLS on, TLS alone means port 8883; with WebSockets the
    ports are 80 and 443.
    """
    settings = MqttSettings(kind="mqtt", host="broker", **told)
    assert expected == (settings.effective_port, settings.uses_tls)


@pytest.mark.parametrize("host", ["::1", "fe80::1", "127.0.0.1", "broker.example"])
def test_a_host_may_be_an_address(host: str) -> None:
    """HOST may be an IPv6 address with colons and without a port."""
    assert host == MqttSettings(kind="mqtt", host=host).host
