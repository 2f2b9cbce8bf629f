"""Names of variables: known ones, misspelt ones, and those that Kubernetes injects."""

import pytest

from bridge.config.variables import refuse_unknown, setting_names
from sinks.shared.errors import ConfigurationError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SEB_SERVICE_HOST", "10.0.0.7"),
        ("SEB_SERVICE_PORT", "9469"),
        ("SEB_SERVICE_PORT_HTTP", "9469"),
        ("SEB_PORT", "tcp://10.0.0.7:9469"),
        ("SEB_PORT_9469_TCP", "tcp://10.0.0.7:9469"),
        ("SEB_PORT_9469_TCP_PROTO", "tcp"),
        ("SEB_PORT_9469_TCP_PORT", "9469"),
        ("SEB_PORT_9469_TCP_ADDR", "10.0.0.7"),
        ("SEB_METRICS_SERVICE_HOST", "10.0.0.8"),
        ("SEB_METRICS_PORT", "tcp://10.0.0.8:9469"),
        ("SEB_METRICS_PORT_53_UDP_ADDR", "10.0.0.8"),
    ],
)
def test_what_kubernetes_injects_is_ignored(name: str, value: str) -> None:
    """The variables of a Service called seb, or seb-something, are ignored."""
    refuse_unknown({name: value})


def test_what_a_program_is_told_is_no_setting() -> None:
    """The variables of a program sink are ignored, because its program may call `seb`."""
    refuse_unknown({"SEB_EVENT_ID": "A-1", "SEB_EVENT_TRANSITION": "ended"})


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "SEB_SITE", "seb_site", "SEB_IMDS", "SEB_IMDS__URL", "SEB_CONFIG"),
        *("SEB_SECRETS_DIR", "SEB_SINK", "SEB_SINK__OPS", "SEB_SINK__OPS-2__TLS__CA"),
    ],
)
def test_known_names_and_other_peoples(name: str) -> None:
    """Known names are accepted in any case, and names without the prefix are ignored."""
    refuse_unknown({name: "x"})


def test_a_port_that_is_not_injected_is_refused() -> None:
    """An unknown name that ends in PORT is ignored only with a value in Kubernetes' form."""
    with pytest.raises(ConfigurationError):
        refuse_unknown({"SEB_METRICS_PORT": "9469"})


def test_every_setting_has_a_name() -> None:
    """Plain settings, sections and their fields have names."""
    names = list(setting_names())
    assert {"SEB_SITE", "SEB_IMDS", "SEB_IMDS__URL", "SEB_SINK"} <= set(names)
    assert len(names) == len(set(names))


def test_nothing_near_suggests_nothing() -> None:
    """For a name without a similar one nothing is suggested."""
    with pytest.raises(ConfigurationError, match=r"SEB_XYZZY: there is no such setting$"):
        refuse_unknown({"SEB_XYZZY": "a"})


def test_a_name_below_a_text_is_refused() -> None:
    """A name below a text field is refused, and one below an object is accepted; names of other
    programs are ignored.
    """
    refuse_unknown({"A__B__C__D": "word", "A__B__C__D__E": "word"})
    above = "SEB_SINK__MQTT__PASSWORD"
    with pytest.raises(ConfigurationError, match=f"{above}__FILE: .* did you mean {above}"):
        refuse_unknown({above: "word", f"{above}__FILE": "/run/word"})
    refuse_unknown({"SEB_SINK__MQTT__TLS": '{"ca": "/ca"}', "SEB_SINK__MQTT__TLS__CERT": "/cert"})
