"""Every step of `seb check`: what was looked at, how it stands, and what to do about it.

It sends no record, changes nothing in the store, and never asks an address that the settings do
not name.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from bridge.approvalcheck import look_at_approval
from bridge.configuration import Configuration, SinkSpec
from bridge.document import DocumentError, parse_document
from bridge.endpoint import client
from bridge.identity import IdentityError, fetch_identity
from bridge.imds import ImdsError
from bridge.servercheck import look_at_server
from bridge.settings import DEFAULT_IMDS_URL, Settings
from bridge.statecheck import look_at_state
from bridge.version import __version__
from sinks.base import Check, SinkContext
from sinks.record import VmIdentity

SINK_SECONDS: Final = 30.0
"""How long a sink's own check may take."""
NOBODY: Final = VmIdentity(vm_id="00000000-0000-0000-0000-000000000000", name="unknown")


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

    `asking` is told of what may take long, before it is begun.
    """
    yield Step(about="settings", check=_settings(config))
    yield from (
        Step(about="state", check=each) for each in look_at_state(config.settings.state_dir)
    )
    yield from (Step(about="approval", check=each) for each in look_at_approval(config))
    yield from (
        Step(about="http", check=each) for each in look_at_server(config.settings.http.listen)
    )
    if offline:
        return
    asking(f"asking {config.settings.imds.url}; the first answer ever can take two minutes")
    vm, steps = _imds(config.settings)
    asking("asking the sinks")
    yield from steps
    for spec, checks in zip(config.sinks, _sinks(config, vm or NOBODY), strict=True):
        yield from (Step(about=f"sink {spec.name}", check=each) for each in checks)


def context_for(config: Configuration, vm: VmIdentity) -> SinkContext:
    """What a sink may know when no bridge runs around it."""
    return SinkContext(
        vm=vm,
        now=lambda: datetime.now(UTC),
        site=config.settings.site,
        version=__version__,
        instance_id="check",
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


def _imds(settings: Settings) -> tuple[VmIdentity | None, list[Step]]:
    imds = client(settings)
    steps = []
    try:
        answer = imds.events()
        document = parse_document(answer.body)
        steps.append(
            Step(
                about="imds",
                check=Check(
                    level="ok",
                    text=(
                        f"{imds.url} answers in {answer.latency_ms:.0f} ms with api-version "
                        f"{imds.api_version}; {_pending(len(document.events))}"
                    ),
                ),
            )
        )
    except (ImdsError, DocumentError) as error:
        steps.append(_imds_failed(settings, error))
    finally:
        imds.close()
    vm, step = _identity(settings)
    return vm, [*steps, step]


def _pending(count: int) -> str:
    return {0: "no event is pending", 1: "1 event is pending"}.get(
        count, f"{count} events are pending"
    )


def _imds_failed(settings: Settings, error: Exception) -> Step:
    remedy = (
        "the first request ever can take two minutes; then see that this is an Azure VM, that no "
        "firewall or network policy blocks 169.254.169.254, and for a pod that it may reach IMDS "
        "(hostNetwork)"
        if settings.imds.url == DEFAULT_IMDS_URL
        else "see that SEB_IMDS__URL is right and that something answers there"
    )
    return Step(about="imds", check=Check(level="fail", text=str(error), remedy=remedy))


def _identity(settings: Settings) -> tuple[VmIdentity | None, Step]:
    try:
        vm = fetch_identity(client(settings), settings.identity.tags)
    except (ImdsError, IdentityError) as error:
        remedy = "see the line about imds; without an identity there are no records"
        check = Check(level="fail", text=str(error), remedy=remedy)
        return None, Step(about="identity", check=check)
    missing = [tag for tag in settings.identity.tags if tag not in vm.tags]
    where = f" in {vm.location}" if vm.location else ""
    text = f"this VM is {vm.name} ({vm.vm_id}){where}"
    if missing:
        check = Check(
            level="warn",
            text=f"{text}, without the tags {json.dumps(missing)}",
            remedy="add the tags to the VM, or take them out of SEB_IDENTITY__TAGS",
        )
        return vm, Step(about="identity", check=check)
    return vm, Step(about="identity", check=Check(level="ok", text=text))


def _sinks(config: Configuration, vm: VmIdentity) -> list[Sequence[Check]]:
    """Each sink's own check, all at once, each within its time."""
    context = context_for(config, vm)
    waits = [_begin(spec, context) for spec in config.sinks]
    return [wait() for wait in waits]


def _begin(spec: SinkSpec, context: SinkContext) -> Callable[[], Sequence[Check]]:
    found: list[Check] = []

    def look() -> None:
        try:
            found.extend(spec.sink_class(spec.name, spec.settings, context).check())
        except Exception as error:  # noqa: BLE001  # a sink may be anybody's; say so and go on
            found.append(
                Check(
                    level="fail",
                    text=f"its check ended with {type(error).__name__}",
                    remedy="this is a bug in the sink; tell its author",
                )
            )

    thread = threading.Thread(target=look, name=f"check-{spec.name}", daemon=True)
    thread.start()

    def wait() -> Sequence[Check]:
        thread.join(SINK_SECONDS)
        if thread.is_alive():
            return [
                Check(
                    level="fail",
                    text=f"its check did not end within {SINK_SECONDS:g} s",
                    remedy="see that a firewall lets the connection through",
                )
            ]
        return found or [Check(level="ok", text="nothing to check")]

    return wait
