"""The unit that runs the bridge under systemd: as little power as it can do with, and why.

It only makes text; it never writes a file and never talks to systemd.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from bridge.errors import ConfigurationError

_HIDDEN: Final = ("/home", "/root", "/run/user", "/tmp", "/var/tmp", "/dev")  # noqa: S108
"""What ProtectHome=, PrivateTmp= and PrivateDevices= hide from a service."""
_PLAIN: Final = frozenset("/._-+@:,=~")

_UNIT: Final = """\
# scheduled-events-bridge, printed by `seb systemd-unit`.
# Save it as /etc/systemd/system/seb.service and leave it as it is: what is to be otherwise goes
# into a drop-in (`systemctl edit seb`), which outlives the next version of this file.

[Unit]
Description=Azure Scheduled Events bridge
# Not network-online.target: IMDS is on the link itself, and an event must be seen while all else
# is away. The order counts at shutdown: the last records go out before the network goes down.
After=network.target
# Events come when a machine is in trouble: never give up on starting. A setting that is wrong is
# another matter, see RestartPreventExitStatus.
StartLimitIntervalSec=0

[Service]
# Ready when the store is open; IMDS may take two minutes more to answer for the first time.
Type=notify
NotifyAccess=main
# Finished polls feed the watchdog, failed ones too: a poll loop that hangs is restarted, an IMDS
# that does not answer is not. Where one poll may take longer, the bridge says so itself.
WatchdogSec=60
# The watchdog ends the process with SIGABRT; where each thread was then stands in the journal.
Environment=PYTHONFAULTHANDLER=1

# Settings, SEB_NAME=value a line. systemd reads it as root: it can be root's own (mode 0600).
EnvironmentFile=-/etc/seb/seb.env
# Secrets: a file each, root's own, named like its variable. A line each, in a drop-in:
#LoadCredential=SEB_SINK__MQTT__PASSWORD:/etc/seb/credentials/SEB_SINK__MQTT__PASSWORD
#LoadCredential=SEB_SINK__OPS__SECRET:/etc/seb/credentials/SEB_SINK__OPS__SECRET

# What is wrong and what to do about it, in the journal. The dash leaves the verdict to the next
# line: RestartPreventExitStatus= does not look at what ExecStartPre= ends with.
ExecStartPre=-{check}
ExecStart={run}
Restart=always
RestartSec=5
# A setting or the state directory is wrong: somebody has to change it first.
RestartPreventExitStatus=78
# The bridge takes at most 7 s to stop. It asks its programs to end itself: nobody else does.
TimeoutStopSec=20
KillMode=mixed

# An account of its own, made at each start; the state is in /var/lib/scheduled-events-bridge.
DynamicUser=yes
StateDirectory=scheduled-events-bridge
StateDirectoryMode=0700
UMask=0077

# No privilege, no device, nothing to write to but the state.
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
DevicePolicy=closed
PrivateIPC=yes
PrivateMounts=yes
KeyringMode=private
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
# Not ProcSubset=pid: it hides the boot id, which tells a reboot from a restart of the bridge.
# Not PrivateUsers=yes: many hardened machines allow no user namespaces, and it would not start.
# Not IPAddressDeny=: IMDS is link-local and the sinks may be anywhere.
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM

# It needs about 60 MiB and 20 threads; programs that it runs count as well. One of theirs that
# runs out of memory does not end the bridge. No core file: there are secrets in memory.
MemoryMax=256M
TasksMax=128
OOMPolicy=continue
LimitCORE=0

# The `file` sink and the programs of the `program` sink live within all of this: as an account
# without rights, on a file system that cannot be written. A drop-in gives them what they need:
#   to write somewhere, if the directory's mode allows it too    ReadWritePaths=/var/log/seb
#   ip, tc, and whatever looks at the machine's interfaces       RestrictAddressFamilies=AF_NETLINK
#   PowerShell, Java, Node.js: code that is made as it runs      MemoryDenyWriteExecute=no
#   what a group may do                                          SupplementaryGroups=docker
# What needs root is better done by a service of its own, which the program starts.

[Install]
WantedBy=multi-user.target
"""


def unit(command: Sequence[str]) -> str:
    """The text of the unit that runs `seb`, whose absolute path and first arguments `command` is.

    Raises `ConfigurationError` where systemd cannot run such a path.
    """
    return _UNIT.format(check=_line([*command, "check", "--offline"]), run=_line([*command, "run"]))


def obstacles(places: Iterable[Path]) -> Iterator[str]:
    """What would keep such a service from the places that it is made of: a sentence each."""
    for place in places:
        resolved = place.resolve()
        if hidden := next((each for each in _HIDDEN if resolved.is_relative_to(each)), None):
            yield f"{resolved} cannot be seen by this service, which has no {hidden}"
        elif closed := next((each for each in resolved.parents if not _open_to_all(each)), None):
            yield f"{closed} can be entered by its owner only, and this service is another account"


def _line(words: Sequence[str]) -> str:
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    """A word of a command line, as systemd reads it (systemd.service(5), "Command lines")."""
    if any(sign in "\"'\\$" or not sign.isprintable() for sign in word):
        raise ConfigurationError(
            f"systemd runs nothing from a path with quotes, $ or \\ in it: {word!a}; install seb "
            "elsewhere, such as in /opt/seb"
        )
    word = word.replace("%", "%%")  # a specifier otherwise
    plain = all(sign.isalnum() or sign in _PLAIN for sign in word)
    return word if plain else f'"{word}"'


def _open_to_all(directory: Path) -> bool:
    try:
        return bool(directory.stat().st_mode & stat.S_IXOTH)
    except OSError:
        return False
