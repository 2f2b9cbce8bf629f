"""SEB_COMMANDS__PULL_*: the channel that it brings in, and what it refuses."""

from pathlib import Path

import pytest

from bridge.config import reference
from bridge.config.load import Configuration, load
from sinks.shared.errors import ConfigurationError

URL = "https://control.example/fleet/secret-path"
TOKEN = "secret-token"


def configured(**variables: str) -> Configuration:
    """Return the configuration with a pull URL and these variables."""
    return load({}, environ={"SEB_COMMANDS__PULL_URL": URL, **variables})


def refusal(**variables: str) -> str:
    """Return the message about wrong variables; it has no secret."""
    with pytest.raises(ConfigurationError) as caught:
        load({}, environ=variables)
    assert "secret" not in str(caught.value)
    return str(caught.value)


def test_a_url_brings_in_one_channel() -> None:
    """SEB_COMMANDS__PULL_URL adds one channel, beside standard output, which is the sink if none is
    configured.
    """
    found = configured(SEB_COMMANDS__PULL_TOKEN=TOKEN).sinks
    assert [(spec.name, spec.settings.kind) for spec in found] == [
        ("stdout", "stdout"),
        ("pull", "pull"),
    ]


def test_what_is_in_force_is_shown_once_and_masked() -> None:
    """The settings of the channel are shown once, under the names that can be set, with masked
    secrets.
    """
    shown = dict(reference.effective(configured(SEB_COMMANDS__PULL_TOKEN=TOKEN)))
    assert [name for name in shown if "PULL" in name] == [
        "SEB_COMMANDS__PULL_URL",
        "SEB_COMMANDS__PULL_TOKEN",
    ]
    assert "secret" not in str(shown)


@pytest.mark.parametrize("name", ["pull", "PULL"])
def test_a_sink_of_that_name_is_refused(name: str) -> None:
    """A sink with the channel's name is refused, because both would share a cursor in the
    outbox.
    """
    variable = f"SEB_SINK__{name.upper()}"
    error = refusal(**{"SEB_COMMANDS__PULL_URL": URL, f"{variable}__KIND": "stdout"})
    assert error == (
        f"{variable}: with SEB_COMMANDS__PULL_URL set, this is the name of the bridge's own "
        "command channel; give yours another name"
    )


def test_a_sink_of_that_name_is_fine_without_it() -> None:
    """Without the channel, a sink may have its name."""
    found = load({}, environ={"SEB_SINK__PULL__KIND": "stdout"}).sinks
    assert [spec.name for spec in found] == ["pull"]


def test_a_sink_of_that_kind_cannot_be_declared() -> None:
    """A declared sink of the channel's kind is refused, and the error names the variable to set
    instead.
    """
    error = refusal(SEB_SINK__OPS__KIND="pull", SEB_SINK__OPS__URL=URL)
    assert error == (
        "SEB_SINK__OPS: a sink of kind pull cannot be declared; "
        "set SEB_COMMANDS__PULL_URL to fetch commands"
    )


def test_each_refusal_names_its_variable(tmp_path: Path) -> None:
    """Each refusal names its variable, and shows neither the token nor the address."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    given = {"SEB_COMMANDS__PULL_URL": URL}
    assert refusal(SEB_COMMANDS__PULL_URL="http://control.example/secret").startswith(
        "SEB_COMMANDS__PULL_URL: this must be https"
    )
    assert refusal(**given, SEB_COMMANDS__PULL_TOKEN="secret token").startswith(
        "SEB_COMMANDS__PULL_TOKEN: a bearer token is a single word"
    )
    assert refusal(
        **given, SEB_COMMANDS__PULL_TOKEN=TOKEN, SEB_COMMANDS__PULL_TOKEN_FILE=str(file)
    ).startswith("SEB_COMMANDS__PULL_TOKEN_FILE: give PULL_TOKEN or PULL_TOKEN_FILE, not both")
    assert refusal(**given, SEB_COMMANDS__PULL_TOKEN_FILE=str(tmp_path / "no")).startswith(
        "SEB_COMMANDS__PULL_TOKEN_FILE: the file that it names cannot be read"
    )
    assert refusal(SEB_COMMANDS__PULL_TOKEN=TOKEN) == (
        "SEB_COMMANDS__PULL_TOKEN has an effect only with SEB_COMMANDS__PULL_URL"
    )
