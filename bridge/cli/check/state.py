"""`seb check` about the state directory and its store. It never creates a store there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bridge import system
from bridge.api import control
from bridge.cli.sink_table import holds_backlog, refuses
from bridge.config.load import Configuration
from bridge.config.settings import Settings
from bridge.store.opening import (
    FILE_NAME,
    DamagedError,
    EarlierVersionError,
    open_existing,
    open_store,
)
from sinks.base import Check
from sinks.shared.errors import SebError

LOW_DISK_BYTES: Final = 64 << 20
_REMEDY: Final = (
    "give this check the settings of the bridge: read its environment file first, or name them "
    "with --set"
)


def check_state(directory: Path) -> Iterator[Check]:
    """Yield the state of the directory and its store. If a bridge runs there, ask that bridge
    instead.
    """
    try:
        running = control.send(directory, {"ask": "outbox.list"})
    except SebError as error:
        remedy = error.remedy or "run it as the bridge's user"
        yield Check.fail(error.what, remedy)
        return
    except (control.ControlError, OSError):
        running = None
    if running is not None:
        yield Check.ok(f"{directory} is in use by the bridge that runs here")
        if running.get("trouble"):
            yield Check.fail(
                f"that bridge cannot commit: {running['trouble']}",
                "correct that; the bridge then continues by itself",
            )
        yield from _outbox(running)
        return
    try:
        yield _try_store(directory)
    except SebError as error:
        remedy = error.remedy or "choose another SEB_STATE_DIR"
        yield Check.fail(error.what, remedy)
        return
    except OSError as error:
        yield Check.fail(
            f"{directory} cannot be written ({error.strerror})",
            "create it for this user, or set SEB_STATE_DIR to one that it may write to",
        )
        return
    yield from _disk(directory)


def _disk(directory: Path) -> Iterator[Check]:
    free = shutil.disk_usage(_existing(directory)).free
    if free < LOW_DISK_BYTES:
        yield Check.warn(
            f"only {free >> 20} MiB are free where {directory} is",
            "free some space: without it no new record can be committed",
        )
    if system.is_volatile(directory):
        yield Check.warn(
            f"{directory} is in memory or on a temporary disk",
            "set SEB_STATE_DIR to the OS disk: a redeploy loses the others",
        )


def _try_store(directory: Path) -> Check:
    """Open the existing store, or a new one in a temporary directory, and leave no trace."""
    if (directory / FILE_NAME).exists():
        try:
            open_existing(directory).close()
        except DamagedError as error:
            return Check.warn(
                f"the store in {directory} is damaged ({' '.join(str(error).split())})",
                "nothing to do: the bridge puts it aside when it starts, and begins a new one",
            )
        except EarlierVersionError:
            return Check.ok(
                f"the store in {directory} is of an earlier version; the bridge converts it when it"
                " starts"
            )
        return Check.ok(f"the store in {directory} opens and can be written")
    parent = _existing(directory)
    with tempfile.TemporaryDirectory(dir=parent) as scratch:
        store, _ = open_store(Path(scratch), datetime.now(UTC))
        store.close()
    return Check.ok(f"a store can be made in {directory}")


def _existing(directory: Path) -> Path:
    while not directory.exists():
        directory = directory.parent
    return directory


def _outbox(answer: dict[str, object]) -> Iterator[Check]:
    sinks = answer["sinks"]
    for sink in sinks if isinstance(sinks, list) else ():
        state = f"{sink['name']}: {sink['state']}, {sink['backlog']} to deliver"
        if sink["state"] in ("failing", "paused"):
            yield Check.warn(
                f"{state} ({sink['reason']})",
                f"see its line below; `seb outbox retry {sink['name']}` retries now",
            )
        if sink["dead"]:
            yield Check.warn(
                f"{sink['name']}: {sink['dead']} dead",
                "see `seb outbox list`, then `seb outbox retry` or `seb outbox drop`",
            )


def ask_sinks(config: Configuration) -> dict[str, Check]:
    """Return the sinks as the running bridge reports them, by name; empty if no bridge runs."""
    try:
        running = control.send(config.settings.state_dir, {"ask": "outbox.list"})
    except (control.ControlError, SebError, OSError):
        return {}
    sinks = running["sinks"] if running is not None else ()
    return {sink["name"]: _last_answer(sink) for sink in sinks if sink["configured"]}


def _last_answer(sink: dict[str, Any]) -> Check:
    name = sink["name"]
    backlog = sink["backlog"]
    if sink["state"] in ("failing", "paused"):
        return Check.fail(
            f"{sink['state']} in the running bridge, records to deliver: {backlog}; "
            f"{sink['reason']}",
            f"correct that; `seb outbox retry {name}` makes it try at once",
        )
    if refuses(sink):
        return Check.fail(
            f"idle in the running bridge: {sink['reason']}",
            "correct that; then `seb outbox retry` or `seb outbox drop` its dead records",
        )
    if holds_backlog(sink, datetime.now(UTC)):
        return Check.warn(
            f"{sink['state']} in the running bridge, but records to deliver: {backlog}, the oldest "
            f"since {sink['oldestPendingAt']}",
            "see `seb outbox list`; a delivery may take as long as the sink's timeout",
        )
    if sink["state"] == "ok":
        return Check.ok(f"ok in the running bridge, last delivered {sink['lastDeliveredAt']}")
    text = f"{sink['state']} in the running bridge: no record has been acknowledged yet"
    if not backlog:
        return Check.ok(text)
    text += f"; records to deliver: {backlog}"
    return Check.warn(text, "wait some seconds, and check again")


def ask_running(config: Configuration) -> dict[str, Any] | None:
    """Return the settings that the running bridge reports; None without one."""
    try:
        return control.send(config.settings.state_dir, {"ask": "settings"})
    except (control.ControlError, SebError, OSError):
        return None


def check_running(config: Configuration, running: dict[str, Any]) -> Iterator[Check]:
    """Yield the differences of settings that matter for the next checks."""
    imds = running["imds"]
    own = config.settings.imds
    if imds["url"] != own.url:
        yield Check.warn(
            f"the running bridge asks IMDS at {imds['url']}, and these settings say {own.url}",
            _REMEDY,
        )
    names = sorted(spec.name for spec in config.sinks)
    if sorted(running["sinks"]) != names:
        yield Check.warn(
            (
                f"the running bridge has the sinks {', '.join(running['sinks'])}, and these "
                f"settings name {', '.join(names)}"
            ),
            _REMEDY,
        )


def imds_of(settings: Settings, running: dict[str, Any] | None) -> Settings:
    """Return the settings with the address of IMDS that the running bridge uses."""
    if running is None:
        return settings
    imds = {"url": running["imds"]["url"], "api_version": running["imds"]["apiVersion"]}
    return settings.model_copy(update={"imds": settings.imds.model_copy(update=imds)})
