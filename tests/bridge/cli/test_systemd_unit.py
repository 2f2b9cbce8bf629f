"""The unit that `seb systemd-unit` prints, checked with systemd's own tools."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.process.seb_here import Here

from bridge import system
from bridge.cli import systemd_unit
from bridge.cli.systemd_unit import obstacles, unit
from sinks.shared.errors import ConfigurationError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="systemd is Linux' own")
MAX_SCORE = 2.0
ANALYZE = shutil.which("systemd-analyze") or ""
analyzed = pytest.mark.skipif(not ANALYZE, reason="systemd-analyze is not installed")


def entries(text: str) -> list[str]:
    """Return the lines that are no comments."""
    return [line for line in text.splitlines() if line and line[0] not in "#["]


def analyze(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze on `seb.service` in a directory; return its output."""
    return subprocess.run(
        [ANALYZE, *arguments, "./seb.service"],
        cwd=home,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with the unit of a seb whose path has a space and a percent sign."""
    seb = tmp_path / "100 % ours" / "bin" / "seb"
    seb.parent.mkdir(parents=True)
    seb.write_text("#!/bin/sh\n")
    seb.chmod(0o755)
    (tmp_path / "seb.service").write_text(unit([str(seb)]))
    return tmp_path


@analyzed
def test_systemd_understands_every_line(home: Path) -> None:
    """The tools of systemd find no unknown name, no ignored value and no missing path."""
    result = analyze("verify", home=home)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@analyzed
def test_a_misspelt_line_would_be_seen(home: Path) -> None:
    """systemd-analyze reports a misspelt line, so the check above is meaningful."""
    text = (home / "seb.service").read_text()
    (home / "seb.service").write_text(text.replace("ProtectClock", "ProtectClok"))
    assert "'ProtectClok'" in analyze("verify", home=home).stderr


@analyzed
def test_its_exposure_is_small(home: Path) -> None:
    """The unit's exposure score is small; 10 is a service without any protection."""
    result = analyze("security", "--offline=true", "--threshold=20", home=home)
    (score,) = re.findall(r"Overall exposure level for seb\.service: ([0-9.]+)", result.stdout)
    assert (result.returncode, float(score) <= MAX_SCORE) == (0, True)


def test_it_runs_this_very_seb(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit runs seb by the path of this call; links are not resolved."""
    seb = tmp_path / "seb"
    seb.symlink_to("/bin/true")
    monkeypatch.setattr(systemd_unit, "_own_command", lambda: (str(seb),))
    monkeypatch.setattr(systemd_unit, "_HIDDEN", ())
    monkeypatch.setattr(systemd_unit, "_open_to_all", lambda _: True)
    result = here("systemd-unit")
    assert (result.code, result.err) == (0, "")
    assert [line for line in entries(result.out) if line.startswith("Exec")] == [
        f"ExecStartPre=-{seb} check --offline",
        f"ExecStart={seb} run",
    ]


def test_it_says_what_would_keep_the_service_out(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard error names what the service could not read, so that the unit can be redirected."""
    monkeypatch.setattr(systemd_unit, "_HIDDEN", (str(tmp_path),))
    monkeypatch.setattr(systemd_unit, "_own_command", lambda: (str(tmp_path / "seb"),))
    result = here("systemd-unit")
    assert result.code == 0
    assert f"seb: {tmp_path / 'seb'} cannot be seen by this service" in result.err
    assert result.out.startswith("# scheduled-events-bridge")


@pytest.mark.parametrize("how", ["script", "module", "python"])
def test_the_own_command(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is this script, or `-m bridge` with the Python of the script, or of a module
    without one.
    """
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    script = tmp_path / "seb"
    python = tmp_path / "python"
    if how != "python":
        script.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    called = script if how == "script" else tmp_path / "bridge" / "__main__.py"
    monkeypatch.setattr(sys, "argv", [str(called), "systemd-unit"])
    wanted = (str(python), "-m", "bridge") if how == "python" else (str(script),)
    assert systemd_unit._own_command() == wanted


def test_windows_has_no_systemd(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows the exit code is 78, with a page to read."""
    monkeypatch.setattr(system, "is_windows", lambda: True)
    result = here("systemd-unit")
    assert (result.code, result.out, "docs/windows.md" in result.err) == (78, "", True)


@pytest.mark.parametrize("path", ['/a"b/seb', "/a'b/seb", "/a\\b/seb", "/a$b/seb", "/a\nb/seb"])
def test_a_path_that_systemd_refuses(path: str) -> None:
    """The command refuses a path that systemd would refuse when it loads the unit."""
    with pytest.raises(ConfigurationError, match="install seb elsewhere"):
        unit([path])


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("/opt/seb/bin/seb", "/opt/seb/bin/seb"),
        ("/opt/s e b/seb", '"/opt/s e b/seb"'),
        ("/opt/50%n/seb", '"/opt/50%%n/seb"'),
        ("/opt/süß/seb", "/opt/süß/seb"),
    ],
)
def test_how_a_path_is_written(path: str, written: str) -> None:
    """A path is written plainly if possible, otherwise in quotes, and specifiers are escaped."""
    assert f"ExecStart={written} -m bridge run" in entries(unit([path, "-m", "bridge"]))


def test_paths_that_the_service_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home directory, or one that only its owner may enter, is an obstacle; /usr/bin is none."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "seb").touch()
    assert list(obstacles([Path("/usr/bin/env")])) == []
    (hidden,) = obstacles([Path("/home/x/bin/seb")])
    monkeypatch.setattr(systemd_unit, "_HIDDEN", ())
    (shut,) = obstacles([closed / "seb"])
    assert hidden.startswith("/home/x/bin/seb cannot be seen by this service")
    assert shut.startswith(f"{closed} can be entered by its owner only")


def test_what_the_unit_promises() -> None:
    """The unit has the lines on which restarts, secrets and the watchdog depend."""
    lines = entries(unit(["/opt/seb/bin/seb"]))
    for line in (
        "Type=notify",
        "WatchdogSec=60",
        "Restart=always",
        "RestartPreventExitStatus=78",
        "StartLimitIntervalSec=0",
        "DynamicUser=yes",
        "StateDirectory=scheduled-events-bridge",
        "StateDirectoryMode=0700",
        "LimitCORE=0",
    ):
        assert line in lines
    assert not [line for line in lines if line.startswith(("ProcSubset", "After=network-online"))]
