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


@needs_root
@pytest.mark.parametrize(
    ("owner", "mode", "file"),
    [(0, 0o755, None), (USER, 0o750, "seb.db"), (0, 0o755, "theirs"), (1000, 0o755, "theirs")],
)
def test_a_new_directory_is_given_away(
    tmp_path: Path, owner: int, mode: int, file: str | None
) -> None:
    """What the kubelet made for root becomes the bridge's own, closed to everybody else, and stays
    so; a path that was chosen by mistake is told, and nothing in it is touched.
    """
    directory = tmp_path / "state"
    directory.mkdir()
    if file:
        (directory / file).touch()
    os.chown(directory, owner, owner)
    directory.chmod(mode)
    ended = prepare(directory)
    said = f"in use by uid {owner}" if file == "theirs" else ""
    assert (ended.returncode, bool(ended.stderr)) == (int(bool(said)), bool(said))
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    found = directory.stat()
    after = (owner, owner, mode) if file else (USER, USER, 0o700)
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == after


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
