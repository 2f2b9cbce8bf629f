"""Every step of `seb check`: what was looked at, how it stands, and what to do about it.

It sends no record, changes nothing in the store, and never asks an address that the settings do
not name.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bridge import control, host
from bridge.configuration import Configuration, SinkSpec
from bridge.document import DocumentError, parse_document
from bridge.errors import SebError
from bridge.identity import IdentityError, fetch_identity
from bridge.imds import Imds, ImdsError
from bridge.settings import DEFAULT_IMDS_URL, Settings
from bridge.storefile import FILE_NAME, open_store
from bridge.version import __version__
from sinks.base import Check, SinkContext
from sinks.record import VmIdentity

SINK_SECONDS: Final = 30.0
"""How long a sink's own check may take."""
LOW_DISK_BYTES: Final = 64 << 20
_NOBODY: Final = VmIdentity(vm_id="00000000-0000-0000-0000-000000000000", name="unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of the report. `about`: settings, state, imds, identity, or sink NAME."""

    about: str
    check: Check


def checkup(config: Configuration, *, offline: bool) -> Iterator[Step]:
    """The steps, in the order in which a person would look; the network only unless offline."""
    yield Step(about="settings", check=_settings(config))
    yield from (Step(about="state", check=each) for each in _state(config.settings.state_dir))
    if offline:
        return
    vm, steps = _imds(config.settings)
    yield from steps
    for spec, checks in zip(config.sinks, _sinks(config, vm or _NOBODY), strict=True):
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


def _state(directory: Path) -> Iterator[Check]:
    try:
        running = control.ask(directory, {"ask": "outbox.list"})
    except (control.ControlError, OSError):
        running = None
    if running is not None:
        yield Check(level="ok", text=f"{directory} is in use by the bridge that runs here")
        yield from _outbox(running)
        return
    try:
        yield _try_store(directory)
    except SebError as error:
        text, _, remedy = str(error).partition("; ")
        yield Check(level="fail", text=text, remedy=remedy or "choose another SEB_STATE_DIR")
        return
    except OSError as error:
        yield Check(
            level="fail",
            text=f"{directory} cannot be written ({error.strerror})",
            remedy="make it writable for this user, or set SEB_STATE_DIR",
        )
        return
    free = shutil.disk_usage(_existing(directory)).free
    if free < LOW_DISK_BYTES:
        yield Check(
            level="warn",
            text=f"only {free >> 20} MiB are free where {directory} is",
            remedy="free some space: without it nothing new can be committed",
        )
    if host.is_volatile(directory):
        yield Check(
            level="warn",
            text=f"{directory} is in memory or on a temporary disk",
            remedy="set SEB_STATE_DIR to the OS disk: a redeploy loses the others",
        )


def _try_store(directory: Path) -> Check:
    """Open the store that is there, or one in a directory beside, and leave no trace."""
    if (directory / FILE_NAME).exists():
        store, reset = open_store(directory, datetime.now(UTC))
        store.close()
        if reset is not None:
            return Check(
                level="warn",
                text=f"the store in {directory} was damaged ({reason(reset.reason)})",
                remedy=f"it is kept as {reset.kept_as}, and a new one is ready; nothing to do",
            )
        return Check(level="ok", text=f"the store in {directory} opens and can be written")
    parent = _existing(directory)
    with tempfile.TemporaryDirectory(dir=parent) as scratch:
        store, _ = open_store(Path(scratch), datetime.now(UTC))
        store.close()
    return Check(level="ok", text=f"a store can be made in {directory}")


def reason(text: str) -> str:
    """A reason on one line."""
    return " ".join(text.split())


def _existing(directory: Path) -> Path:
    while not directory.exists():
        directory = directory.parent
    return directory


def _outbox(answer: dict[str, object]) -> Iterator[Check]:
    """What the running bridge says of its sinks."""
    sinks = answer["sinks"]
    for sink in sinks if isinstance(sinks, list) else ():
        state = f"{sink['sink']}: {sink['state']}, {sink['backlog']} to deliver"
        if sink["state"] in ("failing", "paused"):
            yield Check(
                level="warn",
                text=f"{state} ({sink['reason']})",
                remedy=f"see the line of sink {sink['sink']} below; `seb outbox retry` wakes it",
            )
        if sink["dead"]:
            yield Check(
                level="warn",
                text=f"{sink['sink']}: {sink['dead']} records are dead",
                remedy="see `seb outbox list`, then `seb outbox retry` or `seb outbox drop`",
            )


def _imds(settings: Settings) -> tuple[VmIdentity | None, list[Step]]:
    client = Imds(
        settings.imds.url,
        api_version=settings.imds.api_version,
        timeout=settings.imds.timeout,
        first_timeout=settings.imds.first_timeout,
    )
    steps = []
    try:
        answer = client.events()
        document = parse_document(answer.body)
        steps.append(
            Step(
                about="imds",
                check=Check(
                    level="ok",
                    text=(
                        f"{client.url} answers in {answer.latency_ms:.0f} ms with api-version "
                        f"{client.api_version}: {len(document.events)} events are pending"
                    ),
                ),
            )
        )
    except (ImdsError, DocumentError) as error:
        steps.append(_imds_failed(settings, error))
    finally:
        client.close()
    vm, step = _identity(settings)
    return vm, [*steps, step]


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
    imds = settings.imds
    try:
        vm = fetch_identity(
            Imds(
                imds.url,
                api_version=imds.api_version,
                timeout=imds.timeout,
                first_timeout=imds.timeout,
            ),
            settings.identity.tags,
        )
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
