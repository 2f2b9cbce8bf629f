"""The state directory and its store, as `seb check` looks at them.

It makes no store if there was none, and never opens one that a bridge has open.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bridge import system
from bridge.api import control
from bridge.errors import SebError
from bridge.store.opening import FILE_NAME, open_store
from sinks.base import Check

LOW_DISK_BYTES: Final = 64 << 20


def look_at_state(directory: Path) -> Iterator[Check]:
    """The state of the directory and its store; if a bridge runs there, it is asked instead."""
    try:
        running = control.ask(directory, {"ask": "outbox.list"})
    except SebError as error:
        remedy = error.remedy or "run it as the bridge's user"
        yield Check(level="fail", text=error.what, remedy=remedy)
        return
    except (control.ControlError, OSError):
        running = None
    if running is not None:
        yield Check(level="ok", text=f"{directory} is in use by the bridge that runs here")
        if running.get("trouble"):
            yield Check(
                level="fail",
                text=f"that bridge cannot commit: {running['trouble']}",
                remedy="correct that; the bridge then continues by itself",
            )
        yield from _outbox(running)
        return
    try:
        yield _try_store(directory)
    except SebError as error:
        remedy = error.remedy or "choose another SEB_STATE_DIR"
        yield Check(level="fail", text=error.what, remedy=remedy)
        return
    except OSError as error:
        yield Check(
            level="fail",
            text=f"{directory} cannot be written ({error.strerror})",
            remedy="create it for this user, or set SEB_STATE_DIR to one that it may write to",
        )
        return
    yield from _disk(directory)


def _disk(directory: Path) -> Iterator[Check]:
    """What is wrong with the disk of the directory, for a store."""
    free = shutil.disk_usage(_existing(directory)).free
    if free < LOW_DISK_BYTES:
        yield Check(
            level="warn",
            text=f"only {free >> 20} MiB are free where {directory} is",
            remedy="free some space: without it no new record can be committed",
        )
    if system.is_volatile(directory):
        yield Check(
            level="warn",
            text=f"{directory} is in memory or on a temporary disk",
            remedy="set SEB_STATE_DIR to the OS disk: a redeploy loses the others",
        )


def _try_store(directory: Path) -> Check:
    """Open the existing store, or a new one in a temporary directory, and leave no trace."""
    if (directory / FILE_NAME).exists():
        store, reset = open_store(directory, datetime.now(UTC))
        store.close()
        if reset is not None:
            return Check(
                level="warn",
                text=f"the store in {directory} was damaged ({_one_line(reset.reason)})",
                remedy=f"it is kept as {reset.kept_as}, and a new one is ready; nothing to do",
            )
        return Check(level="ok", text=f"the store in {directory} opens and can be written")
    parent = _existing(directory)
    with tempfile.TemporaryDirectory(dir=parent) as scratch:
        store, _ = open_store(Path(scratch), datetime.now(UTC))
        store.close()
    return Check(level="ok", text=f"a store can be made in {directory}")


def _one_line(text: str) -> str:
    """A reason on one line."""
    return " ".join(text.split())


def _existing(directory: Path) -> Path:
    while not directory.exists():
        directory = directory.parent
    return directory


def _outbox(answer: dict[str, object]) -> Iterator[Check]:
    """What the running bridge reports about its sinks."""
    sinks = answer["sinks"]
    for sink in sinks if isinstance(sinks, list) else ():
        state = f"{sink['name']}: {sink['state']}, {sink['backlog']} to deliver"
        if sink["state"] in ("failing", "paused"):
            yield Check(
                level="warn",
                text=f"{state} ({sink['reason']})",
                remedy=f"see its line below; `seb outbox retry {sink['name']}` retries now",
            )
        if sink["dead"]:
            yield Check(
                level="warn",
                text=f"{sink['name']}: {sink['dead']} dead",
                remedy="see `seb outbox list`, then `seb outbox retry` or `seb outbox drop`",
            )
