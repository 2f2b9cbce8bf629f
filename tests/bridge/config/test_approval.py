"""The settings of approval and of its rules."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.commands.control_plane import LEAVE_OUT, IssuerKey, jwks
from support.rules import EVERY_KEY

from bridge.approval.trusted_keys import trust_of
from bridge.config.approval import Rule
from bridge.config.load import load
from sinks.shared.errors import CONFIGURATION, ConfigurationError


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no .env of somebody's


def rules(*given: Mapping[str, Any], **variables: str) -> tuple[Rule, ...]:
    """Return the rules of the environment."""
    environ = {"SEB_APPROVAL__RULES": json.dumps(given), **variables}
    return load(environ=environ).settings.approval.rules


def refusal(*given: object, **variables: str) -> str:
    """Return the message with which a configuration is refused."""
    with pytest.raises(ConfigurationError) as caught:
        load(environ={"SEB_APPROVAL__RULES": json.dumps(given), **variables})
    assert caught.value.exit_code == CONFIGURATION
    return str(caught.value)


def test_every_key_but_the_name_has_a_default() -> None:
    """A rule with only a name approves events that name this VM and no other."""
    assert (Rule(name="mine"),) == rules({"name": "mine"})


def test_every_key_of_a_rule_is_read() -> None:
    """Each key of a rule is read into its field."""
    assert EVERY_KEY.keys() == Rule.model_fields.keys(), "tests/support/rules.py names every key"
    (read,) = rules(EVERY_KEY, SEB_SINK__DRAIN__KIND="stdout")
    assert read.model_dump(mode="json") == EVERY_KEY


def test_rules_can_stand_in_the_toml_file(tmp_path: Path) -> None:
    """The tables [[approval.rules]] of the TOML file are the same rules, in their order."""
    file = tmp_path / "seb.toml"
    file.write_text(
        '[[approval.rules]]\nname = "short"\nevent_type = ["Freeze"]\nmax_duration = 9\n'
        '[[approval.rules]]\nname = "mine"\nevent_source = ["User"]\nmax_resources = 2\n'
        'leader = "first"\ntakeover = 30\n'
    )
    read = load(environ={"SEB_CONFIG": str(file)}).settings.approval.rules
    expected = (
        Rule(name="short", event_type=("Freeze",), max_duration=9),
        Rule(name="mine", event_source=("User",), max_resources=2, leader="first", takeover=30),
    )
    assert expected == read


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": LEAVE_OUT}, "SEB_APPROVAL__RULES__0__NAME: this must be given"),
        ({"name": ""}, "SEB_APPROVAL__RULES__0__NAME"),
        ({"name": "x\nactor=root"}, "one line of text"),
        ({"name": " x"}, "one line of text"),
        ({"name": "x" * 101}, "SEB_APPROVAL__RULES__0__NAME"),
        ({"event_type": "Freeze"}, 'give a JSON list, such as ["a", "b"]'),
        ({"event_type": []}, "leave the key out to match any"),
        ({"event_source": [""]}, "leave the key out to match any"),
        ({"max_duration": -1}, "SEB_APPROVAL__RULES__0__MAX_DURATION"),
        ({"max_duration": "soon"}, "this is not a number"),
        ({"max_resources": -1}, "SEB_APPROVAL__RULES__0__MAX_RESOURCES"),
        ({"max_resources": 1.5}, "SEB_APPROVAL__RULES__0__MAX_RESOURCES"),
        ({"leader": "last"}, "SEB_APPROVAL__RULES__0__LEADER"),
        ({"leader": LEAVE_OUT}, "takeover has an effect only with leader"),
        ({"takeover": 0}, "SEB_APPROVAL__RULES__0__TAKEOVER"),
        ({"evnt_type": ["Freeze"]}, "did you mean SEB_APPROVAL__RULES__0__EVENT_TYPE?"),
        ({"after": ["nobody"]}, "the rule all keys waits for the sink nobody"),
        ({"after": ["Drain"]}, "which is not configured; the sinks are: drain"),
    ],
)
def test_a_rule_that_is_wrong_ends_the_start(change: dict[str, Any], why: str) -> None:
    """A rule that would not do what its writer meant is refused at the start, with a remedy."""
    rule = {name: value for name, value in (EVERY_KEY | change).items() if value is not LEAVE_OUT}
    assert why in refusal(rule, SEB_SINK__DRAIN__KIND="stdout")


def test_rules_have_names_of_their_own() -> None:
    """Two rules with the same name are refused, because a receipt names its rule."""
    assert "two rules have the same name" in refusal({"name": "a"}, {"name": "a"})


def test_rules_that_are_no_json_are_refused() -> None:
    """The error about rules that are not JSON names the variable and what it needs."""
    with pytest.raises(ConfigurationError, match="SEB_APPROVAL__RULES: this is not JSON"):
        load(environ={"SEB_APPROVAL__RULES": "[{name: a}]"})


def test_after_may_name_the_default_sink() -> None:
    """A rule may wait for standard output, the sink that is used if none is configured."""
    assert rules({"name": "a", "after": ["stdout"]})[0].after == ("stdout",)


def test_a_trust_file_is_read(tmp_path: Path) -> None:
    """A valid trust file is accepted; a missing one is an error in the settings."""
    file = tmp_path / "trust.json"
    config = load(environ={"SEB_APPROVAL__TRUST": str(file)})
    with pytest.raises(ConfigurationError) as caught:
        trust_of(config.settings.approval)
    why = f"SEB_APPROVAL__TRUST: the file {file} cannot be read (No such file or directory)"
    assert str(caught.value) == why
    file.write_text(jwks(IssuerKey()))
    assert len(trust_of(config.settings.approval).keys()) == 1
