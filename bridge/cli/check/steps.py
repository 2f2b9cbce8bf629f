"""The steps of `seb check`. They send no record and change nothing in the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from bridge.api.http_client import Viewer
from bridge.cli.check.approval import check_approval
from bridge.cli.check.imds import check_identity, check_imds
from bridge.cli.check.state import ask_running, ask_sinks, check_running, check_state, imds_of
from bridge.cli.common import NOBODY, context_for
from bridge.config.address import parsed
from bridge.config.load import Configuration, SinkSpec
from bridge.config.reference import effective
from sinks.base import Check
from sinks.shared.call_with_timeout import StuckError, call_with_timeout
from sinks.shared.checked_settings import stray
from sinks.shared.errors import SebError
from wire.vm import VmIdentity

SINK_SECONDS: Final = 30.0
"""How long a sink's own check may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLine:
    """One line of the report, about settings, state, approval, http, imds, identity or
    sink NAME.
    """

    about: str
    check: Check


def check_lines(
    config: Configuration, *, offline: bool, on_slow_part: Callable[[str], None] = lambda _: None
) -> Iterator[CheckLine]:
    """Yield the lines of all steps; offline without those that use the network. `on_slow_part` is
    called before each slow part.
    """
    yield from _steps("settings", [_settings(config), *_stray(config)])
    yield from _steps("state", check_state(config.settings.state_dir))
    running = ask_running(config)
    yield from _steps("state", check_running(config, running) if running else ())
    yield from _steps("approval", check_approval(config))
    yield from _steps("http", check_server(config.settings.http.listen))
    if offline:
        return
    settings = imds_of(config.settings, running)
    on_slow_part(f"asking {settings.imds.url}; the first answer ever can take two minutes")
    yield from _steps("imds", check_imds(settings))
    vm, check = check_identity(settings)
    yield CheckLine(about="identity", check=check)
    on_slow_part("asking the sinks")
    for spec, checks in zip(config.sinks, check_sinks(config, vm or NOBODY), strict=True):
        yield from _steps(f"sink {spec.name}", checks)
    # The running sink has its own environment, so what it was answered counts too.
    for name, check in ask_sinks(config).items():
        yield CheckLine(about=f"sink {name}", check=check)


def _steps(about: str, checks: Iterable[Check]) -> Iterator[CheckLine]:
    return (CheckLine(about=about, check=each) for each in checks)


def _stray(config: Configuration) -> Iterator[Check]:
    """Yield lines about values that are allowed, but probably not what was meant."""
    for name, value in effective(config):
        if hint := stray(value):
            yield Check.warn(
                f'{name} is "{value}": {hint}', "correct the line of the environment file"
            )


def _settings(config: Configuration) -> Check:
    sinks = ", ".join(
        spec.name if spec.name == spec.sink_class.KIND else f"{spec.name} ({spec.sink_class.KIND})"
        for spec in config.sinks
    )
    if not config.settings.sink:
        return Check.warn(
            "no sink is configured, so records go to standard output",
            "name one, such as SEB_SINK__MQTT__HOST; see `seb sinks list`",
        )
    return Check.ok(f"every setting is valid; sinks: {sinks}")


def check_server(listen: str) -> Iterator[Check]:
    """Yield the line that says whether a server can listen at this `SEB_HTTP__LISTEN`; no line if
    it is turned off.
    """
    if not listen:
        return
    from bridge.api.server import bound  # noqa: PLC0415  # only where there is a server

    try:
        bound(*parsed(listen)).close()
        yield Check.ok(f"{listen} is free for health, metrics and the page")
    except OSError as error:
        if _is_bridge(listen):
            yield Check.ok(f"the running bridge serves {listen}")
        else:
            yield Check.warn(
                str(error.strerror or error),
                "the bridge works without it; or set SEB_HTTP__LISTEN to a free address",
            )


def _is_bridge(listen: str) -> bool:
    try:
        status, body = Viewer(listen).get("/api/v1/status")
        return "instanceId" in json.loads(body) and bool(status)
    except (SebError, ValueError, TypeError):
        return False


def check_sinks(config: Configuration, vm: VmIdentity) -> list[Sequence[Check]]:
    """Return the lines of each sink, in the order of the configuration."""
    context = context_for(config, vm)

    def check(spec: SinkSpec) -> Sequence[Check]:
        try:
            sink = spec.sink_class(spec.name, spec.settings, context)
            return call_with_timeout(SINK_SECONDS, sink.check) or [Check.ok("nothing to check")]
        except StuckError:
            text = f"its check did not end within {SINK_SECONDS:g} s"
            return [Check.fail(text, "see that a firewall lets the connection through")]
        except Exception as error:  # noqa: BLE001  # a sink may be anybody's; say so and go on
            text = f"its check failed with {type(error).__name__}"
            return [Check.fail(text, "this is a bug in the sink; report it to its author")]

    with ThreadPoolExecutor(max_workers=max(1, len(config.sinks))) as pool:
        return list(pool.map(check, config.sinks))
