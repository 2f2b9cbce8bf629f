"""/usr/bin/seb of the packages: it gives a person the settings that systemd gives the service."""

import importlib.util
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "release" / "files" / "linux" / "seb-of-the-service"


@pytest.fixture
def script(tmp_path: Path) -> ModuleType:
    """The script, loaded as a module; its places are below a directory of the test's own."""
    loader = SourceFileLoader("seb_of_the_service", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    places = {"SETTINGS": "seb.env", "SECRETS": "secrets", "CONSOLE_SETTINGS": "console.env"}
    for name, value in places.items():
        setattr(module, name, tmp_path / value)
    for name in ("PROGRAM", "CONSOLE"):
        setattr(module, name, str(tmp_path / name.lower()))
    return module


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\nB=2\n", {"A": "1", "B": "2"}),
        ("A=1", {"A": "1"}),
        ("# A=1\n;B=2\n\n  C=3\n", {"C": "3"}),
        ("A=  two words  \n", {"A": "two words"}),
        ('A=["seb.event.*"]\n', {"A": '["seb.event.*"]'}),
        ('A={"x": "y z"}\n', {"A": '{"x": "y z"}'}),
        ("A='single $x \\n'\n", {"A": "single $x \\n"}),
        ('A="double \\"quoted\\" \\$5 \\n"\n', {"A": 'double "quoted" $5 \\n'}),
        ('A="over\\\nlines"\n', {"A": "overlines"}),
        ("A=over\\\nlines\n", {"A": "overlines"}),
        ("A=back\\\\slash\n", {"A": "back\\slash"}),
        ("A=one#two\n", {"A": "one#two"}),
        ("A=\nB=x\n", {"A": "", "B": "x"}),
        ("A=a=b\n", {"A": "a=b"}),
        ("no assignment\nA=1\n", {"A": "1"}),
        ("A='two\nlines'\n", {"A": "two\nlines"}),
        ("A=x\r\nB=y\r\n", {"A": "x", "B": "y"}),
    ],
)
def test_it_reads_the_file_as_systemd_does(
    script: ModuleType, text: str, expected: dict[str, str]
) -> None:
    """Comments, quotes, escapes, spaces at the ends: systemd.exec(5), EnvironmentFile=."""
    assert script.read(text) == expected


class Became(Exception):  # what a test sees in the place of exec
    """The program that the script became."""


def started(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str, **caller: str
) -> tuple[str, dict[str, str]]:
    """The program that `seb` with these words becomes, and its environment from `caller`'s."""
    seen: dict[str, str] = dict(caller)

    def become(path: str, words: list[str]) -> None:
        raise Became(path, words)

    monkeypatch.setattr(script.os, "environ", seen)
    monkeypatch.setattr(script.os, "execv", become)
    monkeypatch.setattr(script.sys, "argv", ["seb", *words])
    with pytest.raises(Became) as raised:
        script.main()
    program, called = raised.value.args
    assert called == [program, *words]
    return str(program), seen


def test_the_settings_of_the_service(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """File and secrets count, and what the caller says counts more; before anything is configured
    the command works with its defaults, and the console has its own file and database.
    """
    assert started(script, monkeypatch, "check") == (script.PROGRAM, {})
    script.SETTINGS.write_text("SEB_SITE=weu\nSEB_LOG__LEVEL=info\n")
    script.CONSOLE_SETTINGS.write_text("SEB_CONSOLE_PULL=true\n")
    script.SECRETS.mkdir()
    assert started(script, monkeypatch, "check", SEB_SITE="mine")[1] == {
        "SEB_SITE": "mine",
        "SEB_LOG__LEVEL": "info",
        "SEB_SECRETS_DIR": str(script.SECRETS),
    }
    assert started(script, monkeypatch, "console", "check")[1] == {
        "SEB_CONSOLE_PULL": "true",
        "SEB_CONSOLE_STATE_DIR": "/var/lib/scheduled-events-console",
    }


def test_a_person_who_may_not_read_them(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command works with its defaults, and says that these are not the service's."""

    def refused(*_: object, **__: object) -> str:
        raise PermissionError

    monkeypatch.setattr(type(script.SETTINGS), "read_text", refused)
    assert started(script, monkeypatch, "check")[1] == {}
    assert "use sudo" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("there", "of_bridge", "of_console"),
    [
        (("PROGRAM",), "PROGRAM", "PROGRAM"),
        (("CONSOLE",), "CONSOLE", "CONSOLE"),
        (("PROGRAM", "CONSOLE"), "PROGRAM", "CONSOLE"),
    ],
)
def test_each_package_has_its_program(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    there: tuple[str, ...],
    of_bridge: str,
    of_console: str,
) -> None:
    """`seb console` is the console's package's where it is installed, and else what is there."""
    for name in there:
        Path(getattr(script, name)).touch()
    assert started(script, monkeypatch, "check")[0] == getattr(script, of_bridge)
    assert started(script, monkeypatch, "console", "check")[0] == getattr(script, of_console)
