"""`seb sinks`: lists the kinds of sinks, and tests a configured one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import click

from bridge.api import control
from bridge.cli import common
from bridge.config.load import Configuration, SinkSpec
from bridge.events import bridge_records
from bridge.imds.client import ImdsError, client
from bridge.imds.identity import IdentityError, fetch_identity
from bridge.version import __version__
from sinks import registry
from sinks.shared.call_with_timeout import StuckError, call_with_timeout
from sinks.shared.errors import ConfigurationError, UnreachableError
from wire.observer import BridgeRun, Observer
from wire.record import TEST_STREAM, Record, seal
from wire.vm import VmIdentity

_USUAL_INTERVAL: Final = 60.0
"""The interval in the test record if the bridge sends no heartbeats, in seconds."""


@click.group("sinks")
def command() -> None:
    """List the kinds of sink, or try a configured one."""


@command.command("list", short_help="Print every kind of sink there is.")
def list_() -> None:
    """Print every kind of sink that can be configured here, and what it is."""
    width = max(map(len, registry.kinds()))
    for kind in registry.kinds():
        click.echo(f"{kind:<{width}}  {_summary(kind)}")


def _summary(kind: str) -> str:
    try:
        lines = (registry.load(kind).__doc__ or "").strip().splitlines()
    except registry.BrokenKindError as error:
        return f"cannot be used: {error}"
    return lines[0] if lines else "no description"


@command.command("test", short_help="Deliver one heartbeat record to a sink, now.")
@click.argument("name")
@common.set_option
def test(*, name: str, overrides: tuple[str, ...]) -> None:
    """Deliver one heartbeat record to the configured sink NAME, now.

    Its stream is all zeros, so that no consumer takes it for a record of the bridge. If the bridge
    runs, nothing is sent: the command shows the state that the bridge reports for the sink.
    """
    config = common.read_configuration(overrides)
    spec = next((spec for spec in config.sinks if spec.name == name), None)
    if spec is None:
        names = ", ".join(spec.name for spec in config.sinks)
        raise ConfigurationError(f"no sink is called {name}; configured are: {names}")
    redact = common.start_log(config)
    running = control.send(config.settings.state_dir, {"ask": "outbox.list"})
    if running is not None:
        _report(name, running)
        return
    problem = _deliver(spec, config)
    if problem is not None:
        raise UnreachableError(f"{name}: {redact(problem)}")
    click.echo(f"{name}: delivered")


def _report(name: str, running: dict[str, object]) -> None:
    sinks = running["sinks"]
    for sink in sinks if isinstance(sinks, list) else ():
        if sink["name"] == name:
            click.echo(
                f"{name}: {sink['state']} in the running bridge, "
                f"records to deliver: {sink['backlog']}"
            )
            if sink["state"] in ("failing", "paused"):
                raise UnreachableError(f"{name}: {sink['reason']}")


def _deliver(spec: SinkSpec, config: Configuration) -> str | None:
    """Deliver the record within the sink's deadline; return what went wrong, or None."""
    vm = _identity(config)
    sink = spec.sink_class(spec.name, spec.settings, common.context_for(config, vm))

    def work() -> None:
        sink.open()
        sink.deliver([_record(vm, config)])
        sink.close()

    try:
        call_with_timeout(sink.deadline, work)
    except StuckError:
        return "it gave no answer in time"
    except Exception as error:  # noqa: BLE001  # a sink may be anybody's
        return str(error) or type(error).__name__
    return None


def _identity(config: Configuration) -> VmIdentity:
    try:
        return fetch_identity(client(config.settings), config.settings.identity.tags)
    except (ImdsError, IdentityError) as error:
        raise UnreachableError(
            f"IMDS does not give the VM identity: {error}; see `seb check`"
        ) from None


def _record(vm: VmIdentity, config: Configuration) -> Record:
    now = datetime.now(UTC)
    draft = bridge_records.heartbeat(
        Observer(
            vm=vm,
            node=None,
            bridge=BridgeRun(version=__version__, instance_id="test", site=config.settings.site),
        ),
        now,
        interval=config.settings.heartbeat_interval or _USUAL_INTERVAL,
        polled_at=None,
        pending=0,
        last_sequence=0,
    )
    return seal(draft, sequence=0, stream=TEST_STREAM)
