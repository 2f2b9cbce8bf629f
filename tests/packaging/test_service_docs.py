"""What the pages for Linux, Windows and Docker tell people to type: names and files that exist."""

import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from support.ground.doc_page import blocks

from bridge import system
from bridge.cli.systemd_unit import unit
from bridge.config.load import load

DOCS = Path(__file__).parent.parent.parent / "docs"
UNIT = unit(["/opt/seb/bin/seb"])


@pytest.mark.parametrize("name", ["linux.md", "docker.md"])
def test_settings_as_they_stand(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of settings is one that the bridge takes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").touch()
    (block,) = blocks(f"docs/{name}", "ini")
    pairs = dict(line.split("=", 1) for line in block.text.splitlines()[1:])
    files = {name: "secret" for name in pairs if name.endswith("_FILE")}
    assert [spec.name for spec in load(environ={**pairs, **files}).sinks] == ["mqtt", "ops"]


def test_the_toml_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, with the backslashes of Windows in it."""
    monkeypatch.chdir(tmp_path)
    (block,) = (each.text for each in blocks("docs/windows.md", "toml"))
    secret = tomllib.loads(block)["sink"]["mqtt"]["password_file"]
    (tmp_path / "secret").touch()
    (tmp_path / "seb.toml").write_text(block.replace(secret, "secret"))
    config = load(environ={"SEB_CONFIG": "seb.toml"})
    assert [spec.name for spec in config.sinks] == ["mqtt", "ops"]
    assert secret == r"C:\ProgramData\seb\mqtt-password.txt"


def test_the_file_of_the_windows_service() -> None:
    """It is XML, it names what the other steps make, and each name in it is one of WinSW's."""
    (block,) = blocks("docs/windows.md", "xml")
    root = ET.fromstring(block.text)
    known = {
        *("id", "name", "description", "executable", "arguments", "workingdirectory", "env"),
        *("startmode", "stoptimeout", "stopparentprocessfirst", "onfailure", "resetfailure"),
        *("logpath", "log"),
    }
    assert {each.tag for each in root} == known
    assert root.findtext("executable") == r"C:\Program Files\seb\current\Scripts\seb.exe"
    assert {each.get("name"): each.get("value") for each in root.iter("env")} == {
        "SEB_CONFIG": r"C:\ProgramData\seb\seb.toml",
        "PYTHONUTF8": "1",
        "PYTHONFAULTHANDLER": "1",
    }


def test_the_state_directory_of_the_windows_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page makes private the directory that the bridge uses."""
    monkeypatch.setattr(system, "is_windows", lambda: True)
    monkeypatch.setenv("PROGRAMDATA", r"C:\ProgramData")
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    name = system.default_state_dir().name
    assert f"icacls 'C:\\ProgramData\\{name}' /inheritance:r" in (DOCS / "windows.md").read_text(
        "utf-8"
    )


def test_the_linux_page_and_the_unit_agree() -> None:
    """Files and directories that the page makes are those that the unit reads."""
    text = (DOCS / "linux.md").read_text("utf-8")
    for name in ("/etc/seb/seb.env", "/etc/seb/credentials/SEB_SINK__MQTT__PASSWORD"):
        assert name in UNIT
        assert name in text
    assert "StateDirectory=scheduled-events-bridge" in UNIT
    assert "/var/lib/scheduled-events-bridge" in text
