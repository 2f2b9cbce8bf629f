"""The Dockerfile, as far as can be told without an engine: its promises, and its commands."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.dockerfile import BuildStage, ignore_patterns, ignored, read

from bridge.cli import seb

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def stages() -> list[BuildStage]:
    """The stages of our Dockerfile."""
    return read(ROOT / "Dockerfile")


def test_all_stages_are_on_one_base(stages: list[BuildStage]) -> None:
    """The tools stay behind, the environment finds the Python that it was made with, and the last
    stage, which is built unless another is asked for, is the bridge.
    """
    assert [(stage.name, stage.base) for stage in stages] == [
        ("build", "python:3.13-slim"),
        ("build-console", "build"),
        ("console", "python:3.13-slim"),
        (None, "python:3.13-slim"),
    ]


@pytest.mark.parametrize(
    ("name", "command", "variable", "state"),
    [
        ("", ["run"], "SEB_STATE_DIR", "scheduled-events-bridge"),
        ("console", ["console", "run"], "SEB_CONSOLE_STATE_DIR", "scheduled-events-console"),
    ],
)
def test_an_image_needs_no_shell_and_writes_its_state_only(
    stages: list[BuildStage], name: str, command: list[str], variable: str, state: str
) -> None:
    """Every command is a list of words; one volume, its owner's alone, where the program looks for
    it; an environment and nothing else, so that the bridge's image has no console; and a user by
    number, so that Kubernetes can see that it is not root, with nothing done after it.
    """
    (image,) = (each for each in stages if (each.name or "") == name)
    place = f"/var/lib/{state}"
    assert image.one("ENTRYPOINT").exec_form == ["seb"]
    assert image.one("CMD").exec_form == command
    health = json.loads(image.one("HEALTHCHECK").rest.removeprefix("CMD "))
    assert health[:2] == ["python", "-c"] if name else health == ["seb", "status", "--alive"]
    assert image.one("RUN").exec_form == [
        *("install", "-d", "-o", "65532", "-g", "65532", "-m", "0700", place)
    ]
    assert image.one("VOLUME").rest == place
    assert image.environment[variable] == place
    copied = image.one("COPY")
    assert (copied.flags, copied.words) == (
        (f"--from=build{name and '-console'}",),
        ["/opt/seb", "/opt/seb"],
    )
    names = [each.name for each in image.instructions]
    assert image.one("USER").rest == "65532:65532"
    assert not {"RUN", "COPY", "ADD"} & set(names[names.index("USER") :])


def test_the_image_has_no_installer_and_no_bytecode(stages: list[BuildStage]) -> None:
    """The environment has no pip of its own, and nothing is written beside the code."""
    made = stages[0].all("RUN")[0].exec_form or []
    assert made[1:] == ["-m", "venv", "--without-pip", "/opt/seb"]
    assert stages[-1].environment["PYTHONDONTWRITEBYTECODE"] == "1"


def test_what_the_health_check_calls_is_there() -> None:
    """`seb status` has such an option."""
    result = CliRunner().invoke(seb, ["status", "--help"])
    assert (result.exit_code, "--alive" in result.output) == (0, True)


def test_what_is_installed_is_pinned(stages: list[BuildStage]) -> None:
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


def test_what_is_copied_is_there(stages: list[BuildStage]) -> None:
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
        for package in ("bridge", "console", "sinks", "wire")
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
    return dict(
        re.findall(
            r"^([a-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)", (ROOT / name).read_text(), re.MULTILINE
        )
    )
