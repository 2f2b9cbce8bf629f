"""Ansible, from this machine to machines of the ground: a stand-in for ssh enters them.

Ansible itself, its modules and Python on the far side are real; the one difference is that there is
no network between.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from support.ground.cache import ROOT
from support.ground.nspawn import Machine

_PLAYBOOK: Final = ROOT / "build" / "deploy-tools" / "bin" / "ansible-playbook"
_FOLDER: Final = ROOT / "deploy" / "ansible"
_QUESTION: Final = b"Type yes"
_SECONDS: Final = 540.0
# ssh [options] HOST COMMAND: the last two words count.
_SSH: Final = """\
#!/bin/bash
host=${{@: -2:1}} command=${{@: -1}}
case $host in
{cases}
*) echo "no machine $host" >&2; exit 255;;
esac
exec nsenter -t "$pid" -m -u -i -p -n -- env -i HOME=/root LANG=C.UTF-8 \\
  PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin /bin/sh -c "cd /root; $command"
"""


def missing() -> str:
    """Why there is no Ansible here, in a sentence; empty if there is one."""
    return "" if _PLAYBOOK.exists() else "needs ansible-playbook (make deploy-tools)"


class Ansible:
    """The playbooks of deploy/ansible, with an inventory of machines of the ground."""

    def __init__(self, work: Path, machines: Mapping[str, Machine]) -> None:
        self._work = work
        work.mkdir(exist_ok=True)
        cases = "\n".join(f"{name}) pid={each.first};;" for name, each in machines.items())
        ssh = work / "ssh"
        ssh.write_text(_SSH.format(cases=cases))
        ssh.chmod(0o755)

    def play(
        self, playbook: str, inventory: Mapping[str, Any], *words: str, typed: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a playbook; `typed` is what a person answers its question, None for no terminal."""
        hosts = self._work / "inventory.yml"
        hosts.write_text(yaml.safe_dump(dict(inventory)))
        command = [str(_PLAYBOOK), "-i", str(hosts), str(_FOLDER / playbook), *words]
        environment = {
            **os.environ,
            "ANSIBLE_SSH_EXECUTABLE": str(self._work / "ssh"),
            "ANSIBLE_SSH_TRANSFER_METHOD": "piped",
            "ANSIBLE_HOST_KEY_CHECKING": "false",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_TIMEOUT": "120",
            "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
            "ANSIBLE_LOCAL_TEMP": str(self._work / "local"),
        }
        if typed is not None:
            return _at_a_terminal(command, environment, typed)
        return subprocess.run(
            command,
            cwd=_FOLDER,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )


def _at_a_terminal(
    command: list[str], environment: dict[str, str], typed: str
) -> subprocess.CompletedProcess[str]:
    """The command in a terminal of its own; the answer is typed once its question is there."""
    said = b""
    with subprocess.Popen(
        ["script", "-qec", shlex.join(command), "/dev/null"],
        cwd=_FOLDER,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        watch = threading.Timer(_SECONDS, process.kill)
        watch.start()
        assert process.stdin is not None
        assert process.stdout is not None
        while more := os.read(process.stdout.fileno(), 65536):
            said += more
            if _QUESTION in said and not process.stdin.closed:
                time.sleep(1)  # Ansible throws away what was typed before it listens
                process.stdin.write(typed.encode())
                process.stdin.close()
        code = process.wait()
        watch.cancel()
    return subprocess.CompletedProcess(
        command, code, said.decode(errors="replace").replace("\r", ""), ""
    )
