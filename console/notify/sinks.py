"""The sinks of notices: the bridge's kinds, with the bridge's settings."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from console.config.variables import PREFIX
from console.ingest.messages import OWN_VM
from console.notify.notice import TYPE
from sinks import registry
from sinks.base import Sink, SinkContext
from sinks.shared.checked_settings import check_name, checked, suggestion
from sinks.shared.errors import ConfigurationError
from wire.record import Record
from wire.vm import VmIdentity

_PART: Final = "SINK__"
AUDIT_HEAD: Final = TYPE.format(kind="audit-head")
SITE: Final = "console"
"""The site in an MQTT topic."""


def read_sinks(
    declared: Mapping[str, Mapping[str, Any]], *, version: str, port: int
) -> dict[str, Sink[Any]]:
    """Return the sinks by name, checked and not yet open; `port` is the console's own. Raises
    `ConfigurationError`.
    """
    # A broker closes an older connection with the same client id. So each console has its own id,
    # even beside others on one host, and keeps it over a restart.
    own = f"{OWN_VM}{socket.gethostname()}-{port}"
    context = SinkContext(
        identity=lambda: VmIdentity(vm_id=own, name="console"),
        now=lambda: datetime.now(UTC),
        site=SITE,
        version=version,
        instance_id=str(uuid.uuid4()),
    )
    found: dict[str, Sink[Any]] = {}
    for name, fields in declared.items():
        variable = f"{PREFIX}{_PART}{name.upper()}"
        check_name(name, variable, of="sink")
        kind = str(fields.get("kind", name))
        try:
            loaded = registry.load(kind) if kind in registry.kinds() else None
        except registry.BrokenKindError as error:
            raise ConfigurationError(f"{variable}: {error}") from None
        if loaded is None:
            raise ConfigurationError(
                f"{variable}: there is no kind of sink {kind!r}; the kinds are "
                f"{', '.join(registry.kinds())}{suggestion(kind, registry.kinds())}. The kind is "
                f"the sink's name unless {variable}__KIND says otherwise"
            )
        settings = checked(loaded.Settings, {"kind": kind, **fields}, prefix=f"{variable}__")
        found[name] = loaded(name, settings, context)
    return found


def accepts(sink: Sink[Any], record: Record) -> bool:
    """Check whether a notice is for this sink, by the sink's TYPES. Without TYPES, a chat or a
    pager does not get the head of the audit.
    """
    if sink.settings.types is None and not sink.wants_heartbeats and record.type == AUDIT_HEAD:
        return False
    return sink.accepts(record.type, record.concerns_this_vm)
