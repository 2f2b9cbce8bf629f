"""`seb simulate`: a stand-in for IMDS, which prints its URL on standard output and nothing else."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import click

from bridge.config.address import parsed
from bridge.simulator.faults import FAULT_NAMES, Fault, parse_fault
from bridge.simulator.scenarios import SCENARIOS, UnknownScenarioError
from bridge.simulator.scenarios import scenario as find_scenario
from bridge.simulator.simulator import Simulator
from bridge.simulator.timeline import SimulatedDocument
from bridge.simulator.vm import SimulatedVm
from sinks.shared.number import Number
from sinks.shared.text import listed

DEFAULT_LISTEN = "127.0.0.1:8169"
_NAMES_SHOWN = 2
_SLICE = 0.1
"""Seconds between two checks for Ctrl-C."""
_LINGER = 5.0
"""After the end of the scenario, how many seconds a poller has to get the last document."""


def _parse_listen(_: click.Context, __: click.Parameter, value: str) -> tuple[str, int]:
    try:
        return parsed(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not ADDR:PORT, as in {DEFAULT_LISTEN}") from None


def _parse_faults(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[Fault]:
    try:
        return [parse_fault(value) for value in values]
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _parse_scenario(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            find_scenario(value)
        except UnknownScenarioError as error:
            raise click.BadParameter(str(error)) from None
    return value


def _list_scenarios(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001  # click's signature
    if not value:
        return
    width = max(map(len, SCENARIOS))
    for name, scenario in SCENARIOS.items():
        click.echo(f"{name:<{width}}  {scenario.description}")
    context.exit()


@click.command(name="simulate")
@click.argument("scenario", callback=_parse_scenario)
@click.option(
    "--speed",
    type=Number(min=0, min_open=True, max=1e6),
    default=1.0,
    show_default=True,
    help="How many times as fast as Azure.",
)
@click.option(
    "--listen",
    metavar="ADDR:PORT",
    default=DEFAULT_LISTEN,
    show_default=True,
    callback=_parse_listen,
    help="Where to listen; port 0 takes a free one.",
)
@click.option("--vm", metavar="NAME", default="vm-0", show_default=True, help="The VM's name.")
@click.option(
    "--fault",
    "faults",
    metavar="NAME[=ARG]",
    multiple=True,
    callback=_parse_faults,
    help=f"Misbehave at the next poll; may be given again for the one after: "
    f"{', '.join(FAULT_NAMES)}. ARG is seconds (huge: MiB).",
)
@click.option("--loop", is_flag=True, help="Play again and again, until Ctrl-C.")
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_scenarios,
    help="List the scenarios and exit.",
)
def command(
    *,
    scenario: str,
    speed: float,
    listen: tuple[str, int],
    vm: str,
    faults: list[Fault],
    loop: bool,
) -> None:
    """Stand in for the metadata service and play SCENARIO."""
    host, port = listen
    try:
        simulator = Simulator(
            vm=SimulatedVm(name=vm),
            host=host,
            port=port,
            beyond_loopback=True,
            speed=speed,
            on_document=_log_document,
            on_approval=lambda each: _log(
                f"approval: {', '.join(each.started) or 'without effect'}"
            ),
        )
        simulator.start()
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--listen") from None
    except OSError as error:
        raise click.BadParameter(
            f"cannot listen on {host}:{port} ({error.strerror}); choose another port, or 0",
            param_hint="--listen",
        ) from None
    try:
        with _interruptible() as stop:
            _misbehave(simulator, faults)  # before the address is printed
            click.echo(f"SEB_IMDS__URL={simulator.url}")
            _play(simulator, scenario, stop, loop=loop)
    finally:
        simulator.stop()


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Return an event that Ctrl-C sets, even if the shell made it ignored, and SIGTERM too. An
    exception could come while the simulator holds a lock.
    """
    stop = threading.Event()
    names = [name for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]
    numbers = [signal.Signals[name] for name in names]
    before = [signal.signal(number, lambda *_: stop.set()) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _misbehave(simulator: Simulator, faults: list[Fault]) -> None:
    for fault in faults:
        simulator.fault(fault)
        _log(f"fault {fault}")


def _play(simulator: Simulator, scenario: str, stop: threading.Event, *, loop: bool) -> None:
    while True:
        _log(f"playing {scenario}")
        simulator.play(scenario)
        while not simulator.wait(_SLICE):
            if stop.is_set():
                _log("interrupted")
                return
        if stop.is_set() or not loop:
            break
    # A poller that has polled before gets the last document too.
    if simulator.gets and not stop.is_set():
        simulator.wait_until_served(timeout=_LINGER)
    _log(f"played {scenario}: {simulator.gets} polls, {len(simulator.approvals)} approvals")


def _log_document(document: SimulatedDocument) -> None:
    content = document.json()
    number = len(content["Events"])
    _log(f"incarnation {content['DocumentIncarnation']}, {number} event{'s' * (number != 1)}")
    for event in content["Events"]:
        due = f", not before {event['NotBefore']}" if event["NotBefore"] else ""
        _log(
            f"  {event['EventId']} {event['EventType']} {event['EventStatus']}"
            f" on {listed(event['Resources'], _NAMES_SHOWN)}{due}"
        )


def _log(line: str) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    click.echo(f"{now} {line}", err=True)
