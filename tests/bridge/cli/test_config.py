"""`seb config`: what is in force, and every variable there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.process.bridge import run_seb
from support.process.seb_here import seb_here

from sinks import registry


def test_every_variable_is_listed(tmp_path: Path) -> None:
    """A `.env` file of comments; taken as it is, it changes nothing."""
    said = run_seb("config", "env", home=tmp_path)
    assert (said.code, said.err) == (0, "")
    for name in ("SEB_IMDS__URL", "SEB_STATE_DIR", "SEB_SINK__MQTT__TLS__CA", "SEB_CONFIG"):
        assert f"#{name}=" in said.out
    for kind in registry.BUILT_IN:
        assert f"# A sink of kind {kind}." in said.out
    assert [line for line in said.out.splitlines() if line and not line.startswith("#")] == []
    plain = run_seb("config", "show", home=tmp_path)
    (tmp_path / ".env").write_text(said.out, encoding="utf-8")
    assert run_seb("config", "show", home=tmp_path) == plain


def test_the_order_of_sources(tmp_path: Path) -> None:
    """Command line, environment, `.env`, TOML, secrets directory; each alone is seen."""
    (tmp_path / "seb.toml").write_text('site = "toml"\npoll_interval = 5\nscope = "self"\n')
    (tmp_path / ".env").write_text("SEB_SITE=dotenv\nSEB_POLL_INTERVAL=4\n")
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "SEB_SITE").write_text("secret\n")
    (secrets / "SEB_IMDS__TIMEOUT").write_text("7\n")
    env = {
        "SEB_CONFIG": str(tmp_path / "seb.toml"),
        "SEB_SECRETS_DIR": str(secrets),
        "SEB_SITE": "environment",
    }
    said = run_seb("config", "show", "--set", "seb_site=line", home=tmp_path, env=env)
    shown = dict(line.split("=", 1) for line in said.out.splitlines())
    assert (shown["SEB_SITE"], shown["SEB_POLL_INTERVAL"]) == ("line", "4")
    assert (shown["SEB_SCOPE"], shown["SEB_IMDS__TIMEOUT"]) == ("self", "7")
    assert "SEB_SITE=environment\n" in run_seb("config", "show", home=tmp_path, env=env).out


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("SEB_POL_INTERVAL", "3", "there is no such setting; did you mean SEB_POLL_INTERVAL?"),
        (
            "SEB_SINK__FILE__PAHT",
            "x",
            "there is no such setting; did you mean SEB_SINK__FILE__PATH",
        ),
        ("SEB_SINK__MQTT__PORT", "", "this is not a whole number"),
        ("SEB_SINK__OPS", "{}", "no sink of kind 'ops' is installed"),
        ("SEB_IDENTITY__TAGS", "team", "this is not JSON"),
        ("SEB_IMDS__URL", "imds", "this is not an http:// or https:// URL with a host"),
        ("SEB_CONFIG", "/no/such/file", "cannot be read (No such file or directory)"),
    ],
)
def test_a_wrong_setting_is_78(
    tmp_path: Path,
    *,
    name: str,
    value: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The line names the variable and says what to do."""
    said = seb_here(
        "config", "show", home=tmp_path, env={name: value}, monkeypatch=monkeypatch, capsys=capsys
    )
    assert (said.code, said.out) == (78, "")
    assert [line for line in said.err.splitlines() if name in line and message in line]


def test_names_that_kubernetes_injects_are_ignored(tmp_path: Path) -> None:
    """A Service called seb puts its address into every pod's environment."""
    env = {
        "SEB_SERVICE_HOST": "10.0.0.1",
        "SEB_PORT": "tcp://10.0.0.1:80",
        "SEB_SERVICE_PORT": "80",
    }
    assert run_seb("config", "show", home=tmp_path, env=env).code == 0


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
def test_what_is_shown_can_be_fed_back(tmp_path: Path, env: dict[str, str]) -> None:
    """The lines of `seb config show`, put into a `.env` file, give the same settings."""
    shown = run_seb("config", "show", home=tmp_path, env=env)
    assert (shown.code, shown.err) == (0, "")
    (tmp_path / ".env").write_text(shown.out, encoding="utf-8")
    assert run_seb("config", "show", home=tmp_path) == shown


def test_every_default_of_the_list_can_be_set(tmp_path: Path) -> None:
    """Each line of `seb config env` that has a value is a setting when its # is taken away."""
    listed = run_seb("config", "env", home=tmp_path).out
    given = {"SEB_SINK__FILE__PATH": "x", "SEB_SINK__MQTT__HOST": "h"}
    given |= {"SEB_SINK__PROGRAM__COMMAND": "true", "SEB_SINK__WEBHOOK__URL": "http://h/"}
    given["SEB_SINK__EVENTHUB__CONNECTION_STRING"] = (
        "Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=k;EntityPath=e"
    )
    given["SEB_SINK__STDOUT__KIND"] = "stdout"
    plain = run_seb("config", "show", home=tmp_path, env=given)
    lines = re.findall(r"^#(SEB_\w+=.+)$", listed, re.MULTILINE)
    (tmp_path / ".env").write_text("\n".join(lines), encoding="utf-8")
    shown = run_seb("config", "show", home=tmp_path, env=given)
    assert sorted(shown.out.splitlines()) == sorted(plain.out.splitlines())
    assert "SEB_APPROVAL__RULES=[]" in lines
