"""`seb config`: the settings in force, and every variable."""

import json
import re
from pathlib import Path

import pytest
from support.process.seb_here import Here

from sinks import registry


def test_every_variable_is_listed(here: Here, tmp_path: Path) -> None:
    """`seb config env` prints every variable as a comment, so that the file changes no setting."""
    result = here("config", "env")
    assert (result.code, result.err) == (0, "")
    for name in ("SEB_IMDS__URL", "SEB_STATE_DIR", "SEB_SINK__MQTT__TLS__CA", "SEB_CONFIG"):
        assert f"#{name}=" in result.out
    for kind in registry.BUILT_IN:
        assert f"# A sink of kind {kind}." in result.out
    assert [line for line in result.out.splitlines() if line and not line.startswith("#")] == []
    plain = here("config", "show")
    (tmp_path / ".env").write_text(result.out, encoding="utf-8")
    assert here("config", "show") == plain


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("SEB_POL_INTERVAL", "3", "there is no such setting; did you mean SEB_POLL_INTERVAL?"),
        ("SEB_SINK__OPS", "{}", "no sink of kind 'ops' is installed"),
        ("SEB_CONFIG", "/no/such/file", "cannot be read (No such file or directory)"),
    ],
)
def test_a_wrong_setting_is_78(here: Here, name: str, value: str, message: str) -> None:
    """A wrong setting ends with 78; the line names the variable and a remedy."""
    result = here("config", "show", **{name: value})
    assert (result.code, result.out) == (78, "")
    assert [line for line in result.err.splitlines() if name in line and message in line]


AWKWARD = {
    "SEB_APPROVAL__RULES": json.dumps(
        [
            {"name": 'it\'s "short" #1', "event_type": ["Freeze"], "max_duration": 9.25},
            {"name": "mine", "after": ["program"], "max_resources": 2, "leader": "first"},
        ]
    ),
    "SEB_IDENTITY__TAGS": '["team", "a\\\\b"]',
    "SEB_HEARTBEAT_INTERVAL": "1234.5678",
    "SEB_NODE__POD": " 'a' # \"b\" ",
    "SEB_NODE__NODE": "\u00e9 ${HOME}\tx",
    "SEB_SINK__PROGRAM__COMMAND": "/bin/sh -c 'echo \"x # y\"'",
    "SEB_SINK__OPS__KIND": "file",
    "SEB_SINK__OPS__PATH": "ops.jsonl",
    "SEB_SINK__OPS__TYPES": '["seb.event.*"]',
}


@pytest.mark.parametrize("env", [{}, AWKWARD], ids=["defaults", "awkward"])
def test_the_shown_settings_can_be_read_again(
    here: Here, tmp_path: Path, env: dict[str, str]
) -> None:
    """The lines of `seb config show` in a `.env` file give the same settings."""
    shown = here("config", "show", **env)
    assert (shown.code, shown.err) == (0, "")
    (tmp_path / ".env").write_text(shown.out, encoding="utf-8")
    assert here("config", "show") == shown


def test_every_default_of_the_list_can_be_set(here: Here, tmp_path: Path) -> None:
    """Each line of `seb config env` with a value is a valid setting without its #."""
    listed = here("config", "env").out
    given = {"SEB_SINK__FILE__PATH": "x", "SEB_SINK__MQTT__HOST": "h"}
    given |= {"SEB_SINK__PROGRAM__COMMAND": "true", "SEB_SINK__WEBHOOK__URL": "http://h/"}
    given["SEB_SINK__EVENTHUB__CONNECTION_STRING"] = (
        "Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=k;EntityPath=e"
    )
    given["SEB_SINK__STDOUT__KIND"] = "stdout"
    given["SEB_SINK__KUBERNETES__NODE"] = "node-1"
    plain = here("config", "show", **given)
    lines = re.findall(r"^#(SEB_\w+=.+)$", listed, re.MULTILINE)
    (tmp_path / ".env").write_text("\n".join(lines), encoding="utf-8")
    shown = here("config", "show", **given)
    assert sorted(shown.out.splitlines()) == sorted(plain.out.splitlines())
    assert "SEB_APPROVAL__RULES=[]" in lines
