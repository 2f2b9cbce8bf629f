"""What several commands have in common: reading the settings, starting the log, listening for a
stop.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

import click
from pydantic import BaseModel, SecretStr

from bridge import system
from bridge.config import load
from bridge.config.load import Configuration
from bridge.version import __version__
from sinks.base import SinkContext
from sinks.shared import logs
from wire.vm import VmIdentity

NIL: Final = "00000000-0000-0000-0000-000000000000"
NOBODY: Final = VmIdentity(vm_id=NIL, name="unknown")
"""The VM identity if no bridge runs and IMDS does not answer."""

set_option = click.option(
    "--set",
    "overrides",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting, in the environment's spelling; it overrides every other source.",
)


def read_configuration(overrides: tuple[str, ...]) -> Configuration:
    """Return the configuration, with what the command line adds. Raises `ConfigurationError`."""
    pairs = {}
    for each in overrides:
        name, equals, value = each.partition("=")
        if not equals or not name.upper().startswith("SEB_"):
            raise click.UsageError("--set takes SEB_NAME=VALUE")
        pairs[name.upper()] = value
    return load.load(pairs)


def context_for(config: Configuration, vm: VmIdentity = NOBODY) -> SinkContext:
    """Return the context of a sink without a running bridge."""
    return SinkContext(
        identity=lambda: vm,
        now=lambda: datetime.now(UTC),
        site=config.settings.site,
        version=__version__,
        instance_id="check",
        has_polled=lambda: False,  # what is pending is not known here, so no sink clears it
    )


def start_log(config: Configuration) -> logs.Redactor:
    """Send the log to standard error as the settings say; return the object that removes
    secrets.
    """
    log = config.settings.log
    return logs.configure(form=log.format, level=log.level, secrets=secrets_of(config))


def secrets_of(config: Configuration) -> list[str]:
    """Return every secret value of the configuration that is known without reading a file."""
    return [secret for spec in config.sinks for secret in _secrets(spec.settings)]


def stop_event() -> threading.Event:
    """Return an event that SIGTERM, SIGINT or their Windows equivalents set."""
    stop = threading.Event()
    system.on_stop_signal(stop.set)
    return stop


def interruption() -> threading.Event:
    """Return an event that is never set: signals to stop raise `KeyboardInterrupt` in the main
    thread.
    """

    def interrupt() -> None:
        raise KeyboardInterrupt

    system.on_stop_signal(interrupt)
    return threading.Event()


def complain(error: Exception) -> None:
    """Print an error on standard error; if that cannot be written, only the exit code remains."""
    logs.complain(f"seb: {error}")


def exit_with(code: int) -> NoReturn:
    """End the process now: a thread that is stuck in a sink must not hold it."""
    sys.stdout.flush()
    logs.flush()
    os._exit(code)


def _secrets(value: Any) -> Iterator[str]:
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets(getattr(value, name))
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _secrets(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _secrets(each)
