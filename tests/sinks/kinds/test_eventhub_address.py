"""The Event Hubs sink: connection strings, and the emulator."""

from typing import Any

import pytest

from sinks.kinds.eventhub.address import HubAddress, read_connection_string, read_namespace

KEY = "c2VjcmV0IGtleSBvZiB0aGUgdGVzdA=="
SIGNATURE = "SharedAccessSignature sr=sb%3a%2f%2fn&sig=c2VjcmV0%3d&se=1893456000&skn=send"
REMOTE = f"SharedAccessKeyName=send;SharedAccessKey={KEY};EntityPath=hub"
ANY_CASE = f"sharedaccesskeyname=send;SHAREDACCESSKEY={KEY};entitypath=h;\n"
EMULATOR = f"{REMOTE};UseDevelopmentEmulator=true"
KEYED: Any = {"host": "ns.example.net", "key_name": "send", "key": KEY}


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (f"Endpoint=sb://Ns.example.net/;{REMOTE}", None, HubAddress(**KEYED, hub="hub")),
        (f"Endpoint=sb://ns.example.net/;{REMOTE}", "other", HubAddress(**KEYED, hub="other")),
        (f"endpoint=sb://ns.example.net;{ANY_CASE}", None, HubAddress(**KEYED, hub="h")),
        (
            f"Endpoint=sb://n.example/;SharedAccessSignature={SIGNATURE};EntityPath=hub",
            None,
            HubAddress(host="n.example", hub="hub", signature=SIGNATURE),
        ),
    ],
)
def test_a_string_is_read(text: str, name: str | None, expected: HubAddress) -> None:
    """Host, hub, policy and key are read from the portal's string, with keys in any case; it may
    have a signature instead of the key, and a separate name takes precedence.
    """
    assert expected == read_connection_string(text, name)


@pytest.mark.parametrize(
    ("endpoint", "host", "port"),
    [
        ("sb://localhost", "localhost", None),
        ("sb://LOCALHOST:5672/", "localhost", 5672),
        ("SB://127.0.0.1:5672", "127.0.0.1", 5672),
        ("sb://127.8.9.10/", "127.8.9.10", None),
        ("sb://[::1]:5672/", "localhost", 5672),
    ],
)
def test_an_emulator_on_this_machine_is_allowed(endpoint: str, host: str, port: int | None) -> None:
    """A token may be sent without TLS to a loopback address."""
    address = read_connection_string(f"Endpoint={endpoint};{EMULATOR}", None)
    assert (host, port, True) == (address.host, address.port, address.emulator)


@pytest.mark.parametrize(
    "endpoint",
    [
        "sb://ns.servicebus.windows.net/",
        "sb://localhost.evil.com/",
        "sb://evil.com/localhost",
        "sb://127.0.0.1.evil.com/",
        "sb://127.0.0.1@evil.com/",
        "sb://localhost:pw@evil.com/",
        "sb://evil.com@127.0.0.1/",
        "sb://localhost./",
        "sb://127.0.0.1./",
        "sb://127.1/",
        "sb://0177.0.0.1/",
        "sb://2130706433/",
        "sb://0x7f.0.0.1/",
        "sb://0.0.0.0/",
        "sb://10.0.0.4:5672/",
        "sb://169.254.169.254/",
        "sb://[::]/",
        "sb://[::2]/",
        "sb://[::ffff:127.0.0.1]/",
        "sb://[fe80::1]/",
        "sb://[127.0.0.1]/",
        "sb://::1/",
        "sb:// localhost/",
        "sb://localhost /",
        "sb://localhost\t/",
        "sb://localhost\n.evil.com/",
        "sb://localhost#@evil.com/",
        "sb://localhost?@evil.com/",
        "sb://localhost\\@evil.com/",
        "sb://evil.com\\localhost/",
        "sb://localhost:5672:5672/",
        "sb://localhost:0x1628/",
        "sb://locаlhost/",  # noqa: RUF001  # the a is Cyrillic
        "sb://ⓛocalhost/",
        "sb://１27.0.0.1/",  # noqa: RUF001  # the 1 is wide
        "amqp://localhost/",
        "//localhost/",
        "localhost",
    ],
)
@pytest.mark.parametrize("switch", ["UseDevelopmentEmulator", "usedevelopmentemulator"])
def test_an_emulator_anywhere_else_is_refused(endpoint: str, switch: str) -> None:
    """A connection string that turns TLS off for another host is refused, in whatever form the host
    is written.
    """
    text = f"Endpoint={endpoint};{REMOTE};{switch}=true"
    with pytest.raises(ValueError, match=r"Endpoint|UseDevelopmentEmulator") as caught:
        read_connection_string(text, None)
    assert KEY not in str(caught.value)
    assert "evil" not in str(caught.value)


@pytest.mark.parametrize("value", ["True", "TRUE", "false", "1", "yes", "true ", " true", "t"])
def test_the_switch_has_one_spelling(value: str) -> None:
    """Other spellings of `UseDevelopmentEmulator` are an error, because the SDK silently ignores
    them.
    """
    text = f"Endpoint=sb://localhost/;UseDevelopmentEmulator={value};{REMOTE}"
    with pytest.raises(ValueError, match="UseDevelopmentEmulator"):
        read_connection_string(text, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "made of key=value"),
        (KEY, "made of key=value"),
        (f"Endpoint=sb://n.example/;Key={KEY}", "made of key=value"),
        (f"Endpoint=sb://n.example/;{REMOTE};TransportType=AmqpWebSockets", "made of key=value"),
        (f"Endpoint=sb://n.example/;Endpoint=sb://m.example/;{REMOTE}", "Endpoint twice"),
        (f"Endpoint=sb://n.example/;endpoint=sb://m.example/;{REMOTE}", "Endpoint twice"),
        (REMOTE, "no Endpoint"),
        (f"Endpoint=sb://n.example/;SharedAccessKey={KEY};EntityPath=h", "SharedAccessKeyName"),
        ("Endpoint=sb://n.example/;EntityPath=h", "SharedAccessKeyName"),
        (f"Endpoint=sb://n.example/;{REMOTE};SharedAccessSignature={SIGNATURE}", "keep one"),
        (f"Endpoint=sb://n.example/;EntityPath=h;SharedAccessSignature=sig={KEY}", "se="),
        (f"Endpoint=sb://n.example/;SharedAccessKeyName=p;SharedAccessKey={KEY}", "no EntityPath"),
        (f"Endpoint=sb://n.example:5672/;{REMOTE}", "port 5671"),
        *((f"Endpoint=sb://localhost:{port}/;{EMULATOR}", "port") for port in (0, 65536, 99999)),
        (f"Endpoint=sb://n.example/;SharedAccessKeyName=a b;SharedAccessKey={KEY}", "a blank"),
        (f"Endpoint=sb://n.example/;{REMOTE}".replace("=hub", "=h/../x"), "name of the hub"),
    ],
)
def test_a_broken_string_is_refused_without_its_secret(text: str, words: str) -> None:
    """The error about a broken connection string says what is wrong, and shows nothing that may be
    a key.
    """
    with pytest.raises(ValueError, match=words) as caught:
        read_connection_string(text, None)
    assert KEY not in str(caught.value)


def test_what_the_sdk_gets_reads_back_the_same() -> None:
    """The connection string for the SDK has the same meaning as the user's."""
    address = read_connection_string(f"Endpoint=sb://127.0.0.1:99/;{EMULATOR}", "other")
    assert address == read_connection_string(address.connection_string(), None)


def test_the_address_shows_no_secret() -> None:
    """Neither printing nor `repr` shows the key or the signature."""
    keyed = read_connection_string(f"Endpoint=sb://n.example/;{REMOTE}", None)
    text = f"Endpoint=sb://n.example/;SharedAccessSignature={SIGNATURE};EntityPath=h"
    signed = read_connection_string(text, None)
    shown = f"{keyed} {keyed!r} {signed} {signed!r}"
    assert (KEY in shown, "c2VjcmV0" in shown) == (False, False)


def test_a_namespace_is_a_host_name() -> None:
    """A managed identity needs the namespace's full name and the hub's."""
    expected = HubAddress(host="ns.servicebus.windows.net", hub="hub")
    assert expected == read_namespace("ns.servicebus.windows.net", "hub")
    with pytest.raises(ValueError, match="name of the hub"):
        read_namespace("ns.example.com", None)


@pytest.mark.parametrize("namespace", ["ns", "sb://ns.example.com", "ns.example.com:5671", "a b.c"])
def test_a_namespace_that_is_no_host_name_is_refused(namespace: str) -> None:
    """A short namespace is refused, because its domain differs between the clouds."""
    with pytest.raises(ValueError, match="full host name"):
        read_namespace(namespace, "hub")
