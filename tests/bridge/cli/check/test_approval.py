"""What `seb check` reports of approval."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.commands.control_plane import IssuerKey, jwks

from bridge.cli.check.approval import check_approval
from bridge.config.load import load
from sinks.base import Check


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no .env of somebody's


def lines(*rules: Mapping[str, Any], **variables: str) -> list[Check]:
    """Return the lines about approval for these rules and variables."""
    given = {"SEB_APPROVAL__RULES": json.dumps(rules)} if rules else {}
    return list(check_approval(load(environ={**given, **variables})))


def texts(*rules: Mapping[str, Any], **variables: str) -> list[tuple[str, str]]:
    """Return level and text of each line."""
    return [(each.level, each.text) for each in lines(*rules, **variables)]


def test_no_approval_is_in_order() -> None:
    """Without rules and keys, `check` says that nothing is approved, and that is ok."""
    expected = [("ok", "nothing is approved: no rule and no trusted key is configured")]
    assert expected == texts()


def test_each_rule_is_a_line() -> None:
    """Each rule that can have an effect is a sentence."""
    expected = [
        ("ok", "rule a approves every Freeze event that names this VM and no other"),
        ("ok", "rule b approves every event that names this VM and no other"),
    ]
    assert expected == texts(
        {"name": "a", "event_type": ["freeze"]} | {"event_type": ["Freeze"]}, {"name": "b"}
    )


@pytest.mark.parametrize(
    ("rules", "problem", "remedy"),
    [
        (
            [{"name": "a"}, {"name": "b", "event_type": ["Freeze"]}],
            "but rule a comes first and decides about all of these events",
            "move it before a, or remove it",
        ),
        (
            [{"name": "b", "event_type": ["Freze"]}],
            "but no event type Freze is known",
            "Azure's words are Freeze, Reboot, Redeploy, Preempt, Terminate",
        ),
        (
            [{"name": "b", "event_source": ["Me"]}],
            "but no event source Me is known",
            "Azure's words are Platform, User",
        ),
        (
            [{"name": "b", "after": ["drain"]}],
            "but the sink drain does not get every record that the rule waits for",
            "let its TYPES take seb.event.scheduled.v1 and seb.event.updated.v1",
        ),
        (
            [{"name": "b", "leader": "first"}],
            "but leader has no effect with max_resources 1: an event of two VMs is refused",
            "raise max_resources, or leave out leader",
        ),
        (
            [{"name": "b", "leader": "first", "max_resources": 2, "affects_this_vm": False}],
            "but a VM leads only where the event names it",
            "leave out affects_this_vm = false, or leader",
        ),
    ],
)
def test_a_rule_that_can_never_work_is_a_warning(
    rules: list[dict[str, Any]], problem: str, remedy: str
) -> None:
    """A rule that can never have an effect is a warning with the reason and a remedy."""
    sink = {"SEB_SINK__DRAIN__KIND": "stdout", "SEB_SINK__DRAIN__TYPES": '["seb.event.sch*"]'}
    last = lines(*rules, **sink)[-1]
    assert ("warn", remedy) == (last.level, last.remedy)
    assert last.text.startswith("rule b approves every")
    assert last.text.endswith(problem)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (
            {"name": "b", "after": ["drain"], "affects_this_vm": False},
            "the sink drain prepares this VM alone: events of others are not approved",
        ),
        (
            {"name": "b", "leader": "first", "max_resources": 2},
            "only the VM that leads prepares; the others that the event names do so at LEAD",
        ),
    ],
)
def test_a_rule_that_a_sink_which_prepares_does_not_serve_is_a_warning(
    rule: dict[str, Any], problem: str
) -> None:
    """A rule is a warning if it names a sink that prepares, and that sink does not get the rule's
    events.
    """
    sink = {"KIND": "program", "COMMAND": "true", "PREPARES": "true"}
    last = lines(rule, **{f"SEB_SINK__DRAIN__{key}": value for key, value in sink.items()})[-1]
    assert last.level == "warn"
    assert last.text.endswith(f"but {problem}")


def test_trusted_keys_are_listed_with_their_issuers(tmp_path: Path) -> None:
    """`check` names the issuers of the trusted keys, and the channels of their commands."""
    file = tmp_path / "trust.json"
    file.write_text(jwks(IssuerKey(), IssuerKey("k2", alg="ES256", issuer="https://a.example")))
    variables = {
        "SEB_APPROVAL__TRUST": str(file),
        "SEB_SINK__MQTT__HOST": "localhost",
        "SEB_SINK__MQTT__COMMANDS": "true",
    }
    issuers = "https://a.example, https://control.example"
    expected = [("ok", f"commands that {issuers} signed are accepted (2 keys in {file})")]
    assert expected == texts(**variables)


def test_a_channel_and_its_keys_belong_together(tmp_path: Path) -> None:
    """Commands without keys, keys without commands, and a file without keys are warnings."""
    file = tmp_path / "trust.json"
    file.write_text(jwks())
    mqtt = {"SEB_SINK__MQTT__HOST": "localhost", "SEB_SINK__MQTT__COMMANDS": "true"}
    trust = {"SEB_APPROVAL__TRUST": str(file)}
    assert texts(**mqtt) == [("warn", "commands are received over mqtt, but all are refused")]
    expected = [
        ("warn", f"{file} holds no key, so no command is accepted"),
        ("warn", "keys are trusted, but no channel receives commands"),
    ]
    assert expected == texts(**trust)
    file.write_text(jwks(IssuerKey()))
    assert [each.level for each in lines(**trust, **mqtt)] == ["ok"]


@pytest.mark.parametrize(
    ("interval", "timeout", "warns"), [(1, 7, False), (1, 8, True), (5, 8, False)]
)
def test_a_timeout_that_lets_answers_be_too_slow_to_approve_by(
    interval: int, timeout: int, warns: bool
) -> None:
    """Polls succeed, but each document is too old by the time it is there; `check` says so."""
    found = lines({"name": "a"}, SEB_POLL_INTERVAL=str(interval), SEB_IMDS__TIMEOUT=str(timeout))
    text = (
        "SEB_IMDS__TIMEOUT lets IMDS take 8 s to answer, but while it takes more than 7 s nothing "
        "is approved"
    )
    assert [each.text for each in found if each.level == "warn"] == [text] * warns
