"""The VM's identity from IMDS's instance document; never guessed from host names."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Any, Final

from bridge.imds.client import Imds, ImdsError
from wire.vm import VmIdentity

_LOG: Final = logging.getLogger(__name__)

_STOP_SECONDS: Final = 0.2
"""How soon a stop is noticed while a request to IMDS runs."""


class IdentityError(ValueError):
    """The instance document does not say who this VM is."""


def read_identity(compute: Mapping[str, Any], tags: Sequence[str]) -> VmIdentity:
    """Return the identity, with the named tags. Raises `IdentityError` without a vmId or a name."""
    vm_id = _text(compute, "vmId")
    name = _text(compute, "name")
    if vm_id is None or name is None:
        raise IdentityError("the instance document has no vmId or no name")
    return VmIdentity(
        vm_id=vm_id,
        name=name,
        resource_id=_text(compute, "resourceId"),
        subscription_id=_text(compute, "subscriptionId"),
        resource_group=_text(compute, "resourceGroupName"),
        location=_text(compute, "location"),
        zone=_text(compute, "zone"),
        scale_set=_text(compute, "vmScaleSetName"),
        fault_domain=_text(compute, "platformFaultDomain"),
        update_domain=_text(compute, "platformUpdateDomain"),
        os_type=_text(compute, "osType"),
        vm_size=_text(compute, "vmSize"),
        tags=_tags(compute.get("tagsList"), tags),
    )


def with_tags(vm: VmIdentity, tags: Sequence[str]) -> VmIdentity:
    """Return a stored identity with only the named tags: it may have those of earlier settings."""
    listed = [{"name": name, "value": value} for name, value in vm.tags.items()]
    return replace(vm, tags=_tags(listed, tags))


def fetch_identity(imds: Imds, tags: Sequence[str]) -> VmIdentity:
    """Ask IMDS once, and close the client. Raises `ImdsError` or `IdentityError`."""
    try:
        return read_identity(imds.instance(), tags)
    finally:
        imds.close()


def await_identity(
    fetch: Callable[[], VmIdentity],
    kept: VmIdentity | None,
    *,
    stop: threading.Event,
    interval: float,
    patient: bool,
    on_failure: Callable[[str], None] = lambda _: None,
) -> VmIdentity | None:
    """Return the VM identity from IMDS, or `kept`; None if the wait was stopped, or is not
    `patient`.
    """
    reported = None
    while not stop.is_set():
        try:
            return _unless_stopped(fetch, stop)
        except (ImdsError, IdentityError) as error:
            on_failure(str(error))
            if kept is not None or not patient:
                return kept
            if str(error) != reported:
                reported = str(error)
                _LOG.warning(reported, extra={"action": "identity_trouble"})
        stop.wait(interval)
    return None


def _unless_stopped(fetch: Callable[[], VmIdentity], stop: threading.Event) -> VmIdentity | None:
    """Return the result of `fetch`, or None once `stop` is set; `fetch` runs in a thread because
    IMDS may hang.
    """
    future: Future[VmIdentity] = Future()

    def work() -> None:
        try:
            future.set_result(fetch())
        except Exception as error:  # noqa: BLE001  # raised again below, in the caller's thread
            future.set_exception(error)

    threading.Thread(target=work, name="identity", daemon=True).start()
    while not stop.is_set():
        if wait((future,), _STOP_SECONDS).done:
            return future.result()
    return None


def _text(compute: Mapping[str, Any], name: str) -> str | None:
    """Return a field as text, None if empty. IMDS writes fault and update domains as strings, but a
    simulator may use numbers.
    """
    value = compute.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value.strip() else None


def _tags(listed: object, wanted: Sequence[str]) -> dict[str, str]:
    """Return the wanted tags. Azure: names of tags are not case-sensitive."""
    found = {
        entry["name"].casefold(): entry["value"]
        for entry in (listed if isinstance(listed, list) else ())
        if isinstance(entry, dict)
        and isinstance(entry.get("name"), str)
        and isinstance(entry.get("value"), str)
    }
    return {name: found[name.casefold()] for name in wanted if name.casefold() in found}
