"""Settings: five sources in their order, unknown names found in each, and no value in a message."""

from pathlib import Path

import pytest

from bridge.config.load import Configuration, load
from sinks.base import read_secret
from sinks.shared.errors import CONFIGURATION, ConfigurationError

SECRET = "hunter2-and-more"

NAMES = ("SEB_SITE", "SEB_NODE__CLUSTER", "SEB_SINK__OPS__PATH")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory, without a .env file."""
    monkeypatch.chdir(tmp_path)


def loaded(overrides: dict[str, str] | None = None, **environ: str) -> Configuration:
    """Return the configuration of an environment."""
    return load(overrides or {}, environ=environ)


def problem(overrides: dict[str, str] | None = None, **environ: str) -> str:
    """Return the message about a wrong environment."""
    with pytest.raises(ConfigurationError) as caught:
        loaded(overrides, **environ)
    assert caught.value.exit_code == CONFIGURATION
    return str(caught.value)


def sources(tmp_path: Path, count: int) -> dict[str, str]:
    """Write three settings to each of the last `count` sources, each with its source's name as the
    value; return the environment.
    """
    (tmp_path / "secrets").mkdir()
    for name in NAMES:
        (tmp_path / "secrets" / name).write_text("secrets\n", encoding="utf-8")
    if count > 1:
        _toml(tmp_path)
    if count > 2:
        lines = "".join(f"{name}=dotenv\n" for name in NAMES)
        (tmp_path / ".env").write_text(lines, encoding="utf-8")
    environ = {"SEB_SECRETS_DIR": str(tmp_path / "secrets")}
    environ |= {"SEB_CONFIG": str(tmp_path / "c.toml")} if count > 1 else {}
    return environ | (dict.fromkeys(NAMES, "environ") if count > 3 else {})


def _toml(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        'site = "toml"\n[node]\ncluster = "toml"\n[sink.Ops]\nkind = "file"\npath = "toml"\n',
        encoding="utf-8",
    )


@pytest.mark.parametrize(
    ("count", "wins"),
    [(1, "secrets"), (2, "toml"), (3, "dotenv"), (4, "environ"), (5, "overrides")],
)
def test_precedence(tmp_path: Path, count: int, wins: str) -> None:
    """The order is command line, environment, .env, TOML, secrets: for plain and nested settings,
    and for sinks' fields.
    """
    environ = {"SEB_SINK__OPS__KIND": "file", **sources(tmp_path, count)}
    config = loaded(dict.fromkeys(NAMES, "overrides") if count > 4 else {}, **environ)
    (sink,) = config.sinks
    path = sink.settings.path  # type: ignore[attr-defined]
    assert (wins, wins, wins) == (config.settings.site, config.settings.node.cluster, str(path))


def test_sources_complete_each_other(tmp_path: Path) -> None:
    """The fields of one sink may come from several sources, whatever the case of its name."""
    _toml(tmp_path)
    config = loaded(SEB_CONFIG=str(tmp_path / "c.toml"), SEB_SINK__OPS__AFFECTS_THIS_VM_ONLY="true")
    (sink,) = config.sinks
    assert (sink.name, sink.settings.affects_this_vm_only) == ("ops", True)


def test_the_command_line_may_name_the_file(tmp_path: Path) -> None:
    """SEB_CONFIG itself follows the order of the sources."""
    _toml(tmp_path)
    assert loaded({"SEB_CONFIG": str(tmp_path / "c.toml")}).settings.site == "toml"


def test_without_a_sink_there_is_standard_output() -> None:
    """Without any setting, standard output is the sink."""
    config = loaded()
    assert [sink.name for sink in config.sinks] == ["stdout"]
    assert (config.settings.site, config.settings.poll_interval) == ("default", 1.0)


@pytest.mark.parametrize(
    "value", ["123456", "true", "null", '["a"]', '{"a": 1}', "1e5", "pa$$ ${x}"]
)
def test_a_secret_is_text_whatever_it_looks_like(value: str) -> None:
    """A password that looks like JSON is read as text."""
    config = loaded(
        SEB_SINK__MQTT__HOST="h", SEB_SINK__MQTT__USERNAME="u", SEB_SINK__MQTT__PASSWORD=value
    )
    password = config.sinks[0].settings.password  # type: ignore[attr-defined]
    assert value == read_secret(password, None)


def test_dotenv_expands_nothing(tmp_path: Path) -> None:
    """A secret with ${ in .env is read as it is, as from every other source."""
    (tmp_path / ".env").write_text("SEB_NODE__POD='a${HOME}b'\n", encoding="utf-8")
    assert loaded().settings.node.pod == "a${HOME}b"


def test_an_unknown_name_in_each_source(tmp_path: Path) -> None:
    """An unknown name is refused in each source, with the nearest known name."""
    wrong = "SEB_SITEE"
    meant = "did you mean SEB_SITE?"
    assert meant in problem({wrong: "x"})
    assert meant in problem(**{wrong: "x"})
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / wrong).write_text("x", encoding="utf-8")
    assert meant in problem(SEB_SECRETS_DIR=str(tmp_path / "secrets"))
    (tmp_path / "c.toml").write_text("sitee = 'x'", encoding="utf-8")
    assert meant in problem(SEB_CONFIG=str(tmp_path / "c.toml"))
    (tmp_path / ".env").write_text(f"{wrong}=x\n", encoding="utf-8")
    assert meant in problem()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SEB_IMDS__URI", "SEB_IMDS__URL"),
        ("SEB_SINK__FILE__PAHT", "SEB_SINK__FILE__PATH"),
        ("SEB_SINK__MQTT__TLS__CAA", "SEB_SINK__MQTT__TLS__CA"),
        ("SEB_SINKS__OPS__URL", "SEB_SINK__OPS__URL"),
    ],
)
def test_the_nearest_name_is_suggested(name: str, meant: str) -> None:
    """A name is suggested for a misspelt section, sink, or field below one."""
    assert f"{name}: there is no such setting; did you mean {meant}?" in problem(**{name: SECRET})


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"SEB_STATE_DIR": ""}, "SEB_STATE_DIR: this is empty"),
        ({"SEB_SITE": ""}, "SEB_SITE: this must be one word"),
        ({"SEB_SITE": "a/b"}, "SEB_SITE: this must be one word"),
        ({"SEB_SITE": "a\udcff"}, "SEB_SITE: this is not UTF-8"),
        ({"SEB_SINK__FILE__PATH": "a\udcff"}, "SEB_SINK__FILE__PATH: this is not UTF-8"),
        ({"SEB_SINK__FILE__PATH": "a\0"}, "SEB_SINK__FILE__PATH: this is not UTF-8"),
        ({"SEB_POLL_INTERVAL": ""}, "SEB_POLL_INTERVAL: this is not a number"),
        ({"SEB_POLL_INTERVAL": "0"}, "SEB_POLL_INTERVAL: "),
        ({"SEB_POLL_INTERVAL": "inf"}, "SEB_POLL_INTERVAL: "),
        ({"SEB_HEARTBEAT_INTERVAL": "-1"}, "SEB_HEARTBEAT_INTERVAL: "),
        ({"SEB_HEARTBEAT_INTERVAL": "1e300"}, "SEB_HEARTBEAT_INTERVAL: "),
        ({"SEB_IMDS__TIMEOUT": "1e300"}, "SEB_IMDS__TIMEOUT: "),
        ({"SEB_IMDS__URL": "imds"}, "SEB_IMDS__URL: this is not an http:// or https:// URL"),
        ({"SEB_IMDS__URL": "ftp://a"}, "SEB_IMDS__URL: this is not an http:// or https:// URL"),
        ({"SEB_IMDS__URL": "http://a:99999"}, "SEB_IMDS__URL: this is not"),
        ({"SEB_IMDS__URL": "http://[::1"}, "SEB_IMDS__URL: this is not"),
        ({"SEB_IMDS__URL": "http://a b"}, "SEB_IMDS__URL: this is not"),
        ({"SEB_IMDS__URL": f"http://:{SECRET}@a"}, "SEB_IMDS__URL: the URL must be"),
        ({"SEB_IMDS__URL": "http://a/path"}, "SEB_IMDS__URL: the URL must be"),
        ({"SEB_IMDS__API_VERSION": "latest"}, "SEB_IMDS__API_VERSION: "),
        ({"SEB_HTTP__LISTEN": "9469"}, "SEB_HTTP__LISTEN: this is not ADDRESS:PORT"),
        ({"SEB_HTTP__LISTEN": "0.0.0.0:99999"}, "SEB_HTTP__LISTEN: this is not ADDRESS:PORT"),
        ({"SEB_HTTP__LISTEN": f"{SECRET}:1"}, "SEB_HTTP__LISTEN: this is not ADDRESS:PORT"),
        ({"SEB_LOG__LEVEL": SECRET}, "SEB_LOG__LEVEL: "),
        ({"SEB_IDENTITY__TAGS": '["a"'}, "SEB_IDENTITY__TAGS: this is not JSON"),
        ({"SEB_IDENTITY__TAGS": "a"}, "SEB_IDENTITY__TAGS: this is not JSON"),
        ({"SEB_SINK__FILE__TYPES": '["a"'}, "SEB_SINK__FILE__TYPES: this is not valid JSON"),
        ({"SEB_SINK__FILE__TYPES": "a"}, "SEB_SINK__FILE__TYPES: give a JSON list"),
        ({"SEB_SINK__FILE": ""}, "SEB_SINK__FILE: give a JSON object"),
        ({"SEB_SINK__FILE__KIND": "file"}, "SEB_SINK__FILE__PATH: this must be given"),
        ({"SEB_SINK__NOPE__PATH": "x"}, "SEB_SINK__NOPE: no sink of kind 'nope'"),
        ({"SEB_SINK____PATH": "x"}, "SEB_SINK__: a sink's name is letters"),
        ({"SEB_CONFIG": "nowhere.toml"}, "SEB_CONFIG: nowhere.toml cannot be read"),
        ({"SEB_SECRETS_DIR": "nowhere"}, "SEB_SECRETS_DIR: nowhere cannot be read"),
    ],
)
def test_each_message_names_the_variable(environ: dict[str, str], expected: str) -> None:
    """Each message names the variable and what it needs, and shows no value."""
    message = problem(**environ)
    assert expected in message
    assert SECRET not in message


@pytest.mark.parametrize(
    "variable",
    [
        "SEB_SINK__MQTT__PASSWORD_FILE",
        "SEB_SINK__MQTT__TLS__CA",
        "SEB_SINK__WEBHOOK__SECRET_FILE",
        "SEB_SINK__EVENTHUB__CONNECTION_STRING_FILE",
    ],
)
def test_an_unreadable_file_is_found_at_the_start(tmp_path: Path, variable: str) -> None:
    """The error about a missing file, or a directory in its place, names the variable and not the
    value, which may be a secret by mistake.
    """
    (tmp_path / SECRET).mkdir()
    for value in (SECRET, f"no-{SECRET}", ""):
        message = problem(**{variable: value})
        assert f"{variable}: the file that it names cannot be read" in message
        assert SECRET not in message


def test_files_that_are_no_text(tmp_path: Path) -> None:
    """A secret, a .env or a TOML file that is not UTF-8 is named, and its content is not shown."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "SEB_SITE").write_bytes(b"\xff\xfe")
    assert "SEB_SITE cannot be read" in problem(SEB_SECRETS_DIR=str(tmp_path / "secrets"))
    (tmp_path / "c.toml").write_bytes(b"\xff\xfe")
    assert "is not TOML" in problem(SEB_CONFIG=str(tmp_path / "c.toml"))
    (tmp_path / ".env").write_bytes(b"SEB_SITE=\xff\xfe\n")
    assert ".env cannot be read" in problem()


def test_a_sinks_own_message_shows_no_secret() -> None:
    """A message shows no secret even if the sink's own check quotes it."""
    message = problem(SEB_SINK__WEBHOOK__URL="http://x/", SEB_SINK__WEBHOOK__SECRET=SECRET)
    assert "SEB_SINK__WEBHOOK" in message
    assert SECRET not in message


def test_a_secret_from_a_directory(tmp_path: Path) -> None:
    """A mounted secret is read without the line end; files with other names are ignored."""
    (tmp_path / "s" / "..data").mkdir(parents=True)
    (tmp_path / "s" / "SEB_SINK__MQTT__PASSWORD").write_text(f"{SECRET}\n", encoding="utf-8")
    (tmp_path / "s" / "other").write_bytes(b"\xff")
    environ = {"SEB_SINK__MQTT__HOST": "h", "SEB_SINK__MQTT__USERNAME": "u"}
    config = loaded(CREDENTIALS_DIRECTORY=str(tmp_path / "s"), **environ)
    password = config.sinks[0].settings.password  # type: ignore[attr-defined]
    assert read_secret(password, None) == SECRET
    assert SECRET not in repr(config)


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("SEB_POLL_INTERVAL", "5  # seconds", "a comment needs a line of its own"),
        ("SEB_SINK__MQTT__PORT", "1883 # plain", "a comment needs a line of its own"),
        ("SEB_SCOPE", '"self', "a quote is part of the value"),
        ("SEB_LOG__LEVEL", "debug'", "a quote is part of the value"),
    ],
)
def test_what_an_environment_file_made_of_a_value_is_shown(
    name: str, value: str, hint: str
) -> None:
    """The message shows a comment or an unpaired quote that became part of a value."""
    message = problem(**{"SEB_SINK__MQTT__HOST": "h", name: value})
    assert f"{name}: " in message
    assert f'; it is "{value}": {hint}' in message


def test_no_secret_is_shown_whatever_became_part_of_it() -> None:
    """The message does not show a comment behind a secret, because it may be a part of the
    secret.
    """
    wrong = {"SEB_SINK__WEBHOOK__SECRET": f"{SECRET} # not base64"}
    message = problem(SEB_SINK__WEBHOOK__URL="http://h/", **wrong)
    assert SECRET not in message
