"""The steps of `seb check`, in the order in which a person would look.

None of them sends a record, changes anything in the store, or asks an address that neither the
settings nor a bridge that runs here name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bridge.cli.check.approval import look_at_approval
from bridge.cli.check.http import look_at_server
from bridge.cli.check.imds import look_at_identity, look_at_imds
from bridge.cli.check.running import ask_running, imds_of, look_at_running
from bridge.cli.check.sinks import look_at_sinks
from bridge.cli.check.state import look_at_state
from bridge.cli.offline import NOBODY
from bridge.config.load import Configuration
from bridge.config.messages import stray
from bridge.config.reference import effective
from sinks.base import Check


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of the report. `about`: settings, state, approval, http, imds, identity, or sink
    NAME.
    """

    about: str
    check: Check


def checkup(
    config: Configuration, *, offline: bool, asking: Callable[[str], None] = lambda _: None
) -> Iterator[Step]:
    """The steps, in the order in which a person would look; the network only unless offline.

    `asking` is called before each part that may take long.
    """
    yield Step(about="settings", check=_settings(config))
    yield from (Step(about="settings", check=each) for each in _stray(config))
    yield from (
        Step(about="state", check=each) for each in look_at_state(config.settings.state_dir)
    )
    running = ask_running(config)
    if running is not None:
        yield from (Step(about="state", check=each) for each in look_at_running(config, running))
    yield from (Step(about="approval", check=each) for each in look_at_approval(config))
    yield from (
        Step(about="http", check=each) for each in look_at_server(config.settings.http.listen)
    )
    if offline:
        return
    settings = imds_of(config.settings, running)
    asking(f"asking {settings.imds.url}; the first answer ever can take two minutes")
    yield Step(about="imds", check=look_at_imds(settings))
    vm, check = look_at_identity(settings)
    yield Step(about="identity", check=check)
    asking("asking the sinks")
    for spec, checks in zip(config.sinks, look_at_sinks(config, vm or NOBODY), strict=True):
        yield from (Step(about=f"sink {spec.name}", check=each) for each in checks)


def _stray(config: Configuration) -> Iterator[Check]:
    """Values that are allowed, but probably not what was meant."""
    for name, value in effective(config):
        if hint := stray(value):
            yield Check(
                level="warn",
                text=f'{name} is "{value}": {hint}',
                remedy="correct the line of the environment file",
            )


def _settings(config: Configuration) -> Check:
    sinks = ", ".join(
        spec.name if spec.name == spec.sink_class.KIND else f"{spec.name} ({spec.sink_class.KIND})"
        for spec in config.sinks
    )
    if not config.settings.sink:
        return Check(
            level="warn",
            text="no sink is configured, so records go to standard output",
            remedy="name one, such as SEB_SINK__MQTT__HOST; see `seb sinks list`",
        )
    return Check(level="ok", text=f"every setting is valid; sinks: {sinks}")
