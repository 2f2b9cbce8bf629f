"""`seb demo`: the real bridge against the simulator, on loopback, with a temporary store."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from pathlib import Path

import click

from bridge.cli import common
from bridge.config.load import Configuration, sink_spec
from bridge.config.settings import HttpSettings, ImdsSettings, Settings
from bridge.service.bridge import Bridge
from bridge.simulator.simulator import Simulator
from bridge.simulator.vm import SimulatedVm
from sinks.shared import logs
from sinks.shared.errors import OK

SPEED = 300.0
"""How many times as fast as Azure the demo is: at Azure's pace a live migration takes about twenty
minutes.
"""
POLL_SECONDS = 0.1
PREPARES = ["cmd", "/c", "exit"] if sys.platform == "win32" else ["true"]
"""Stands for a program that drains the VM; the notice lasts only seconds, so it runs at once."""

_WELCOME = """\
A simulated VM is moved to another host, {speed:g} times as fast as Azure would.
Its program prepares before that, and recovers afterwards.
Each line is a record, as it would reach Event Hubs, MQTT or a webhook.
Nothing leaves this machine.
"""
_GOODBYE = """\
That was all. `seb demo | head -2` shows two of the records as JSON, and
`seb schema` describes every field.
"""


@click.command("demo")
def command() -> None:
    """Show a live migration of a simulated VM, at high speed.

    It starts a stand-in for IMDS on loopback and a real bridge with a temporary store; your
    settings, your sinks and the real metadata service are not touched.
    """
    talk = sys.stdout.isatty()
    if talk:
        click.echo(_WELCOME.format(speed=SPEED), err=True)
    with (
        tempfile.TemporaryDirectory() as scratch,
        Simulator(vm=SimulatedVm(name="demo-vm"), speed=SPEED) as simulator,
    ):
        _play(simulator, Path(scratch))
    if talk:
        click.echo(f"\n{_GOODBYE}", err=True)
    common.exit_with(OK)


def _play(simulator: Simulator, scratch: Path) -> None:
    # Only these settings: no variable and no file can point the demo to another address.
    settings = Settings.model_construct(
        imds=ImdsSettings(url=simulator.url),
        poll_interval=POLL_SECONDS,
        heartbeat_interval=0.0,
        http=HttpSettings(listen=""),
        state_dir=scratch,
    )
    drain = {"kind": "program", "command": json.dumps(PREPARES), "prepares": True}
    sinks = (sink_spec("stdout", {}), sink_spec("drain", drain))
    config = Configuration(settings=settings, sinks=sinks)
    # The end of `seb demo | head -2` needs no message; a bug does.
    redact = logs.configure(form="auto", level="error")
    stop = common.stop_event()
    threading.Thread(
        target=_direct, args=(simulator, stop), name="demo-director", daemon=True
    ).start()
    Bridge(config, stop=stop, redact=redact).run()


def _direct(simulator: Simulator, stop: threading.Event) -> None:
    """Play the scenario once the bridge polls, and stop the bridge after the last document."""
    simulator.wait_for_gets(1)
    simulator.play("live-migration", hold=10.0)
    simulator.wait()
    simulator.wait_until_served()
    # The program recovers meanwhile.
    simulator.wait_for_gets(simulator.gets + 10)
    stop.set()
