"""What all commands have in common: help, usage errors, exit codes, imports."""

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.process.bridge import SEB, clean_environment, run_seb
from support.process.seb_here import Here

from bridge.cli import COMMANDS, seb
from bridge.version import __version__

GROUPS = {"config": ("show", "env"), "outbox": ("list", "retry", "drop"), "sinks": ("list", "test")}
PATHS = [(name,) for name in COMMANDS] + [
    (group, each) for group in GROUPS for each in GROUPS[group]
]


def test_the_first_screen(tmp_path: Path) -> None:
    """`seb --help` lists every command within eighty columns."""
    result = run_seb("--help", home=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("Usage: seb [OPTIONS] COMMAND [ARGS]...\n")
    width = max(map(len, COMMANDS))
    for name, summary in COMMANDS.items():
        assert f"{name:<{width}}  {summary}\n" in result.out
    assert max(map(len, result.out.splitlines())) <= 80


def test_help_needs_no_valid_setting(tmp_path: Path) -> None:
    """Help works with wrong settings, and no line of it is cut off."""
    for path in PATHS:
        result = CliRunner().invoke(seb, [*path, "--help"], prog_name="seb")
        assert result.exit_code == 0, path
        assert result.output.startswith(f"Usage: seb {' '.join(path)} ")
        assert "..." not in result.output.replace("]...", "").replace("[ARGS]...", "")
    assert run_seb("run", "--help", home=tmp_path, env={"SEB_NONSENSE": "1"}).code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Usage: seb"),
        (("chek",), "there is no command 'chek'; did you mean `seb check`?"),
        (("frobnicate",), "there is no command 'frobnicate'; `seb --help` lists them all"),
        (("run", "--onse"), "No such option"),
        (("run", "--set", "x=3"), "--set takes SEB_NAME=VALUE"),
        (("run", "--set", "SEB_POLL_INTERVAL"), "--set takes SEB_NAME=VALUE"),
        (("outbox", "retry"), "Missing argument 'SINK'"),
        (("outbox", "drop", "ops"), "standard input is not a terminal; confirm with --yes"),
        (("outbox", "retry", "ops", "one"), "'one' is not a valid integer"),
        (("sinks", "test"), "Missing argument 'NAME'"),
        (("version", "now"), "unexpected extra argument"),
    ],
)
def test_bad_usage_is_2(here: Here, arguments: tuple[str, ...], message: str) -> None:
    """A usage error ends with 2, and standard error says what is wrong and what is right, without a
    trace.
    """
    result = here(*arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("arguments", [("version",), ("config", "env"), ("schema",), ("--help",)])
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """`seb schema | head -1` ends with 0 and no message."""
    process = subprocess.Popen(
        [*SEB, *arguments],
        env=clean_environment(tmp_path, {}),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()  # long before it can have written
    assert process.stderr is not None
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), errors) == (0, b"")


def test_redirected_output_is_utf8(tmp_path: Path) -> None:
    """Redirected output is UTF-8 whatever the machine's encoding is."""
    home = tmp_path / "\u4e8b\u4ef6"
    home.mkdir()
    env = {"PYTHONIOENCODING": "cp1252", "SEB_NODE__POD": "gr\u00f6\u00dfe"}
    shown = run_seb("config", "show", home=home, env={**env, "SEB_STATE_DIR": str(home / "s")})
    assert (shown.code, shown.err) == (0, "")
    assert f"SEB_STATE_DIR={home / 's'}\n" in shown.out
    assert "SEB_NODE__POD=gr\u00f6\u00dfe\n" in shown.out
    failed = run_seb("config", "show", home=home, env={**env, "SEB_CONFIG": str(home / "no")})
    assert (failed.code, str(home / "no") in failed.err) == (78, True)


def test_the_version_is_an_option_too(tmp_path: Path) -> None:
    """`seb --version` prints the version."""
    result = run_seb("--version", home=tmp_path)
    assert result == run_seb("version", home=tmp_path)
    assert (result.code, result.out, result.err) == (0, f"{__version__}\n", "")
