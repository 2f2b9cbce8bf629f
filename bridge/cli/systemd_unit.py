"""`seb systemd-unit`: prints the unit of this installation. It never talks to systemd."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

import click

import bridge
from bridge import system
from sinks.shared.errors import ConfigurationError

_SEB: Final = "/opt/seb/bin/seb"
"""The path of seb in the package's unit, seb.service."""
_HIDDEN: Final = ("/home", "/root", "/run/user", "/tmp", "/var/tmp", "/dev")  # noqa: S108
"""The directories that ProtectHome=, PrivateTmp= and PrivateDevices= hide from a service."""
_PLAIN: Final = frozenset("/._-+@:,=~")


@click.command("systemd-unit")
def command() -> None:
    """Print a hardened systemd unit that runs this very installation of seb.

    Linux: seb systemd-unit > /etc/systemd/system/seb.service
    """
    if system.is_windows():
        raise ConfigurationError(
            "systemd exists on Linux only; for a Windows service see docs/windows.md"
        )
    words = _own_command()
    click.echo(unit(words), nl=False)
    paths = (Path(words[0]), Path(sys.base_prefix, "bin"), Path(bridge.__path__[0]))
    for obstacle in obstacles(paths):
        click.echo(f"seb: {obstacle}: install it where all may read, as in /opt/seb", err=True)


def _own_command() -> tuple[str, ...]:
    """Return the path of this `seb`, or that of its Python with the script, or with `-m bridge`;
    links are not resolved.
    """
    called = sys.argv[0] if Path(sys.argv[0]).name == "seb" else "seb"
    for each in (called, str(Path(sys.executable).with_name("seb")), "seb"):
        if found := shutil.which(each):
            return (os.path.abspath(found),)  # noqa: PTH100  # takes out the .. as well
    return (sys.executable, "-m", "bridge")


def unit(command: Sequence[str]) -> str:
    """Return the unit that runs this command. Raises `ConfigurationError` if systemd
    cannot run it.
    """
    text = files("bridge.cli").joinpath("seb.service").read_text(encoding="utf-8")
    return text.replace(_SEB, " ".join(map(_quoted, command)))


def obstacles(paths: Iterable[Path]) -> Iterator[str]:
    """Yield why such a service could not read the paths of its installation, one sentence each."""
    for path in paths:
        resolved = path.resolve()
        if hidden := next((each for each in _HIDDEN if resolved.is_relative_to(each)), None):
            yield f"{resolved} cannot be seen by this service, which has no {hidden}"
        elif closed := next((each for each in resolved.parents if not _open_to_all(each)), None):
            yield f"{closed} can be entered by its owner only, and this service is another account"


def _quoted(word: str) -> str:
    """Return a word of a command line in systemd's form (systemd.service(5), "Command lines")."""
    if any(sign in "\"'\\$" or not sign.isprintable() for sign in word):
        raise ConfigurationError(
            f"systemd cannot run a program whose path has quotes, $ or \\ in it: {word!a}",
            remedy="install seb elsewhere, such as in /opt/seb",
        )
    word = word.replace("%", "%%")  # a specifier otherwise
    plain = all(sign.isalnum() or sign in _PLAIN for sign in word)
    return word if plain else f'"{word}"'


def _open_to_all(directory: Path) -> bool:
    try:
        return bool(directory.stat().st_mode & stat.S_IXOTH)
    except OSError:
        return False
