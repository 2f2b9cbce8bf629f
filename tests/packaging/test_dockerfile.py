"""The Dockerfile, as far as can be told without an engine: its promises, and its commands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.dockerfile import Stage, ignore_patterns, ignored, read

from bridge.cli import seb

ROOT = Path(__file__).parent.parent.parent
STATE = "/var/lib/scheduled-events-bridge"


@pytest.fixture
def stages() -> list[Stage]:
    """The stages of our Dockerfile."""
    return read(ROOT / "Dockerfile")


@pytest.fixture
def final(stages: list[Stage]) -> Stage:
    """What becomes the image."""
    return stages[-1]


@pytest.fixture
def console(stages: list[Stage]) -> Stage:
    """What becomes the console's image."""
    return next(stage for stage in stages if stage.name == "console")


def test_all_stages_are_on_one_base(stages: list[Stage]) -> None:
    """The tools stay behind, the environment finds the Python that it was made with, and the last
    stage, which is built unless another is asked for, is the bridge.
    """
    assert [(stage.name, stage.base) for stage in stages] == [
        ("build", "python:3.13-slim"),
        ("build-console", "build"),
        ("console", "python:3.13-slim"),
        (None, "python:3.13-slim"),
    ]


def test_nobody_special_runs_it(final: Stage, console: Stage) -> None:
    """By number, so that Kubernetes can see that it is not root; nothing is done after it."""
    for stage in (final, console):
        names = [each.name for each in stage.instructions]
        assert stage.one("USER").rest == "65532:65532"
        assert not {"RUN", "COPY", "ADD"} & set(names[names.index("USER") :])


def test_the_console_needs_no_shell_and_writes_its_state_only(console: Stage) -> None:
    """One volume, its owner's alone; every command is a list of words."""
    state = "/var/lib/scheduled-events-console"
    assert console.one("ENTRYPOINT").exec_form == ["seb"]
    assert console.one("CMD").exec_form == ["console", "run"]
    assert json.loads(console.one("HEALTHCHECK").rest.removeprefix("CMD "))[:2] == ["python", "-c"]
    assert console.one("RUN").exec_form == [
        *("install", "-d", "-o", "65532", "-g", "65532"),
        *("-m", "0700", state),
    ]
    assert console.one("VOLUME").rest == state
    assert console.environment["SEB_CONSOLE_STATE_DIR"] == state
    copied = console.one("COPY")
    assert (copied.flags, copied.words) == (("--from=build-console",), ["/opt/seb", "/opt/seb"])


def test_the_bridge_s_image_has_no_console(final: Stage) -> None:
    """A bridge never pays for it."""
    assert final.one("COPY").flags == ("--from=build",)


def test_no_shell_is_needed(final: Stage) -> None:
    """Everything that runs when it runs is a list of words."""
    assert final.one("ENTRYPOINT").exec_form == ["seb"]
    assert final.one("CMD").exec_form == ["run"]
    health = final.one("HEALTHCHECK").rest.removeprefix("CMD ")
    assert json.loads(health) == ["seb", "status", "--alive"]
    assert [each.exec_form is not None for each in final.all("RUN")] == [True]


def test_what_the_health_check_calls_is_there() -> None:
    """`seb status` has such an option."""
    said = CliRunner().invoke(seb, ["status", "--help"])
    assert (said.exit_code, "--alive" in said.output) == (0, True)


def test_the_state_is_all_that_is_written(final: Stage) -> None:
    """One volume, its owner's alone, where the bridge looks for it; no bytecode beside the code."""
    made = final.one("RUN").exec_form or []
    assert final.one("VOLUME").rest == STATE
    assert final.environment["SEB_STATE_DIR"] == STATE
    assert final.environment["PYTHONDONTWRITEBYTECODE"] == "1"
    assert made == ["install", "-d", "-o", "65532", "-g", "65532", "-m", "0700", STATE]


def test_the_image_has_no_installer(stages: list[Stage], final: Stage) -> None:
    """The environment has no pip of its own, and nothing else is copied."""
    build = stages[0]
    assert (build.all("RUN")[0].exec_form or [])[1:] == [
        *("-m", "venv"),
        *("--without-pip", "/opt/seb"),
    ]
    copied = final.one("COPY")
    assert (copied.flags, copied.words) == (("--from=build",), ["/opt/seb", "/opt/seb"])


def test_what_is_installed_is_pinned(stages: list[Stage]) -> None:
    """By hash, or it is the wheel that was made here."""
    runs = [part for stage in stages for run in stage.all("RUN") for part in run.rest.split("&&")]
    installs = [part for part in runs if " install " in part and " pip " in part]
    assert [
        "--require-hashes" in part or ("--no-index" in part and "--no-deps" in part)
        for part in installs
    ] == [True] * 5


def test_extras_have_a_lock_of_their_own() -> None:
    """It pins what the other pins, at the same versions, and what the extra needs."""
    plain, more = pins("requirements.lock"), pins("requirements-azure-identity.lock")
    assert {name: more.get(name) for name in plain} == plain
    assert "azure-identity" in more.keys() - plain.keys()


def test_what_is_copied_is_there(stages: list[Stage]) -> None:
    """And .dockerignore does not hide it."""
    patterns = ignore_patterns(ROOT / ".dockerignore")
    sources = [
        source
        for stage in stages
        for copy in stage.all("COPY")
        if not copy.flags
        for source in copy.words[:-1]
    ]
    assert {source: (ROOT / source).exists() for source in sources} == dict.fromkeys(sources, True)
    assert [source for source in sources if ignored(source, patterns)] == []


def test_the_packages_are_copied_whole() -> None:
    """Every file in them, the status page included, and no bytecode."""
    patterns = ignore_patterns(ROOT / ".dockerignore")
    files = [
        path.relative_to(ROOT).as_posix()
        for package in ("bridge", "console", "sinks")
        for path in (ROOT / package).rglob("*")
        if path.is_file()
    ]
    bytecode = [path for path in files if path.endswith(".pyc")]
    assert [path for path in files if ignored(path, patterns)] == bytecode
    assert {"bridge/api/static/index.html", "console/web/pages/static/console.js"} <= set(files)


@pytest.mark.parametrize("path", [".git/config", ".env", ".venv/pyvenv.cfg", "tests/x", "key.json"])
def test_nothing_else_reaches_the_engine(path: str) -> None:
    """No secret, no history, no environment."""
    assert ignored(path, ignore_patterns(ROOT / ".dockerignore"))


def test_no_registry_is_named() -> None:
    """An image's name begins with no host: the engine's own default counts."""
    text = (ROOT / "Dockerfile").read_text()
    names = [line.split()[1] for line in text.splitlines() if line.startswith("FROM")]
    assert [name for name in names if "/" in name] == []


def pins(name: str) -> dict[str, str]:
    """Name and version of everything that a lock pins."""
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))
