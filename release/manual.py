"""The manual page seb(1) and the shell completions, from what the program says of itself."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from release import archives

_INTRODUCTION: Final = """\
.SH DESCRIPTION
A bridge asks the instance metadata service of an Azure VM once a second for Scheduled Events. It
stores each change on disk and delivers it to every configured sink: Event Hubs, MQTT, webhooks,
standard output, a file or a local program.
.PP
With the packages for Debian and RHEL,
.B seb
called by root uses the settings of the service, unless the caller's environment has others.
"""
_REST: Final = """\
.SH FILES
.TP
.I /etc/seb/seb.env
Settings of the service, NAME=value lines.
.TP
.I /etc/seb/credentials/
Secrets: one file each, named like the variable, for commands that root calls. A drop-in of the
unit names them for the service.
.TP
.I /var/lib/scheduled-events-bridge/
The store: records that are not delivered yet, and what is known about pending events.
.SH EXIT STATUS
0: success. 1: the answer is no. 2: usage. 69: the metadata service or a sink is unreachable. 70: a
bug. 75: no reply in time. 77: not permitted. 78: a setting is wrong.
.SH SEE ALSO
.BR systemctl (1),
.BR journalctl (1)
"""
_CONSOLE_REST: Final = """\
.SH FILES
.TP
.I /etc/seb/console.env
Settings of the service, NAME=value lines. Called by root,
.B seb console
uses them too.
.TP
.I /var/lib/scheduled-events-console/
The database, unless SEB_CONSOLE_DATABASE names another.
.SH EXIT STATUS
0: success. 1: the answer is no. 2: usage. 69: a source or the database is unreachable. 70: a bug.
77: not permitted. 78: a setting is wrong, or the database is newer than this version.
.SH SEE ALSO
.BR systemctl (1),
.BR journalctl (1)
"""


Say = Callable[..., str]


@functools.cache  # both pages have the commands of the console
def said_by(program: Path, *words: str, **environment: str) -> str:
    """What the program prints on standard output."""
    done = subprocess.run(
        [str(program), *words],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "80", "LC_ALL": "C.UTF-8", **environment},
    )
    return done.stdout


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.MULTILINE)


def _commands(help_text: str) -> list[str]:
    """The names below "Commands:" in a help text."""
    _, _, below = help_text.partition("Commands:\n")
    return re.findall(r"^  ([a-z][a-z-]*)(?: |$)", below, re.MULTILINE)


def _sections(say: Say, *words: str) -> str:
    """Each command below `words` with its own help text, and the commands below that."""
    text = ""
    for name in _commands(say(*words, "--help")):
        said = say(*words, name, "--help")
        title = " ".join(("seb", *words, name))
        text += f".SS {_roff(title)}\n.nf\n{_roff(said)}.fi\n"
        text += _sections(say, *words, name) if _commands(said) else ""
    return text


def page(say: Say, version: str) -> str:
    """The text of seb.1; `say` gives what the program prints, called with some words."""
    day = time.strftime("%Y-%m-%d", time.gmtime(archives.epoch()))
    return (
        f'.TH SEB 1 "{day}" "scheduled-events-bridge {version}"\n'
        ".SH NAME\nseb \\- delivers Azure Scheduled Events from a VM to where they are needed\n"
        ".SH SYNOPSIS\n.B seb\n.I COMMAND\n[options]\n"
        f"{_INTRODUCTION}.SH COMMANDS\n{_sections(say)}{_REST}"
    )


def console_page(say: Say, version: str) -> str:
    """The text of seb-console.1."""
    day = time.strftime("%Y-%m-%d", time.gmtime(archives.epoch()))
    return (
        f'.TH SEB-CONSOLE 1 "{day}" "scheduled-events-bridge {version}"\n'
        ".SH NAME\nseb-console \\- shows a fleet the Azure Scheduled Events that are coming\n"
        ".SH SYNOPSIS\n.B seb console\n.I COMMAND\n[options]\n"
        f".SH COMMANDS\n{_sections(say, 'console')}{_CONSOLE_REST}"
    )


def completion(program: Path, shell: str) -> str:
    """What `shell` (bash, zsh or fish) loads to complete commands and options."""
    return said_by(program, _SEB_COMPLETE=f"{shell}_source")
