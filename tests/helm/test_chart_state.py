"""The init container that makes a directory of the node the bridge's own: its script, for real."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.chart.chart import accepted, pod_spec, render

USER = 65532

needs_root = pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="only root can give a directory away, and only setpriv takes its other rights",
)


def prepare(directory: Path) -> subprocess.CompletedProcess[str]:
    """Run the container's command on a directory, as root with the one capability that it has."""
    (container,) = pod_spec(render("minimal"))["initContainers"]
    (added,) = container["securityContext"]["capabilities"]["add"]
    python, *arguments = container["command"]
    assert python == "python3"
    (place,) = (each["mountPath"] for each in container["volumeMounts"])
    command = [str(directory) if each == place else each for each in arguments]
    rights = f"-all,+{added.lower()}"
    confined = [f"--bounding-set={rights}", f"--inh-caps={rights}", "--no-new-privs"]
    return subprocess.run(
        ["setpriv", *confined, sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def owner_and_mode(directory: Path) -> tuple[int, int, int]:
    """Who owns it, and what others may."""
    found = directory.stat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


@needs_root
def test_a_new_directory_is_given_away(tmp_path: Path) -> None:
    """What the kubelet made for root becomes the bridge's own, closed to everybody else."""
    directory = tmp_path / "state"
    directory.mkdir(mode=0o755)
    ended = prepare(directory)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert owner_and_mode(directory) == (USER, USER, 0o700)


@needs_root
def test_a_second_start_changes_nothing(tmp_path: Path) -> None:
    """With the bridge's store in it, the directory stays as it is."""
    directory = tmp_path / "state"
    directory.mkdir()
    (directory / "seb.db").write_text("records", encoding="utf-8")
    for path in (directory, directory / "seb.db"):
        os.chown(path, USER, USER)
    directory.chmod(0o750)
    ended = prepare(directory)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert owner_and_mode(directory) == (USER, USER, 0o750)


@needs_root
@pytest.mark.parametrize("owner", [0, 1000])
def test_somebody_else_s_directory_is_left_alone(tmp_path: Path, owner: int) -> None:
    """A path that was chosen by mistake is told, and nothing in it is touched."""
    directory = tmp_path / "state"
    directory.mkdir(mode=0o755)
    (directory / "theirs").touch()
    os.chown(directory, owner, owner)
    ended = prepare(directory)
    assert ended.returncode == 1
    assert f"in use by uid {owner}" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert owner_and_mode(directory) == (owner, owner, 0o755)


@pytest.mark.parametrize(
    ("state", "kind", "prepared"),
    [
        ({"type": "hostPath"}, "DirectoryOrCreate", True),
        ({"type": "hostPath", "hostPath": {"prepare": False}}, "Directory", False),
        ({"type": "emptyDir"}, None, False),
    ],
    ids=str,
)
def test_the_directory_is_made_or_waited_for(
    state: dict[str, object], kind: str | None, prepared: bool, tmp_path: Path
) -> None:
    """A directory that the chart does not prepare must be there before the pod starts."""
    spec = pod_spec(accepted(tmp_path, {"state": state}))
    (volume,) = (each for each in spec["volumes"] if each["name"] == "state")
    assert volume.get("hostPath", {}).get("type") == kind
    assert ("initContainers" in spec) == prepared
