"""Which VM this run belongs to. The disk may have moved to another VM. So, until IMDS confirms a
stored identity, nothing is approved, and after a boot nothing is delivered.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

from bridge.clock import Clock
from bridge.config.settings import Settings
from bridge.events.state import load_events
from bridge.imds.client import ImdsError, client
from bridge.imds.identity import IdentityError, await_identity, fetch_identity, with_tags
from bridge.store.database import CONFIRMED_BOOT_KEY, POLLED_NAME, Store, StoreError
from bridge.store.opening import open_store, put_aside
from wire.bridge import StoreReset
from wire.vm import VmIdentity

_LOG: Final = logging.getLogger(__name__)

FRESH_SECONDS: Final = 2.0
"""How long a start waits for IMDS to give the identity if there is a stored one."""


def open_readable(directory: Path, now: datetime) -> tuple[Store, StoreReset | None]:
    """Return the store. A store whose events are damaged is renamed, and a new one is returned.
    Raises what `open_store` raises.
    """
    store, reset = open_store(directory, now)
    try:
        load_events(store.last_seen().events)
    except (ValueError, LookupError, TypeError) as error:
        return put_aside(store, now, reason=f"{type(error).__name__}: {error}")
    return store, reset


class OpenFile:
    """A file that is in use, to find out whether its name was given to another one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened = path.stat()

    def is_replaced(self) -> bool:
        """Check whether the file's name is gone or belongs to another file. If the whole directory
        is missing, as on a disk that is not mounted, it returns False.
        """
        try:
            return not os.path.samestat(self._opened, self.path.stat())
        except FileNotFoundError:
            return self.path.parent.exists()
        except OSError:
            return False


class Ownership:
    """Which VM this run belongs to, and whether its store is that VM's.

    `refresh` may be called from any thread, one at a time.
    """

    def __init__(self, settings: Settings, clock: Clock, *, boot_id: str | None) -> None:
        self._settings = settings
        self._clock = clock
        self._boot_id = boot_id
        self.confirmed = False
        """Whether IMDS has said in this run who this VM is."""
        self._same_boot = False

    @property
    def may_deliver(self) -> bool:
        """Whether records may be sent in the VM's name: within one boot a disk does not move."""
        return self.confirmed or self._same_boot

    def identify(
        self,
        store: Store,
        *,
        stop: threading.Event,
        patient: bool,
        on_failure: Callable[[str], None],
    ) -> VmIdentity | None:
        """Return the VM identity, from IMDS or the store; None if told to stop or not patient."""
        kept = store.identity()
        if kept is not None:
            kept = with_tags(kept, self._settings.identity.tags)
        booted = store.meta(CONFIRMED_BOOT_KEY)
        # If the system does not tell boots apart, there may have been one.
        self._same_boot = bool(self._boot_id) and booted == self._boot_id
        fetched = threading.Event()

        def fetch() -> VmIdentity:
            vm = self._fetch(FRESH_SECONDS if kept else None)
            fetched.set()
            return _as_kept(vm, kept)

        vm = await_identity(
            fetch,
            kept,
            stop=stop,
            interval=self._settings.poll_interval,
            patient=patient,
            on_failure=on_failure,
        )
        self.confirmed = vm is not None and fetched.is_set()
        if vm is not None and not self.confirmed:
            held = "nothing is approved" if self.may_deliver else "nothing is delivered or approved"
            _LOG.warning(
                "IMDS has not confirmed the VM identity: until it does, %s",
                held,
                extra={"action": "identity_trouble", "vm": vm.name},
            )
        return vm

    def own_store(
        self, store: Store, reset: StoreReset | None, vm: VmIdentity
    ) -> tuple[Store, StoreReset | None]:
        """Return the store of this VM. A store that came with a disk image is renamed, and
        replaced.
        """
        if not self.confirmed:
            return store, reset
        kept = store.identity()
        if kept is not None and kept.vm_id != vm.vm_id:
            reason = f"the store belongs to another VM, {kept.vm_id}"
            store, reset = put_aside(store, self._clock.now(), reason=reason)
            with suppress(OSError):  # when IMDS was polled last, that was for the other VM
                (store.directory / POLLED_NAME).unlink(missing_ok=True)
        store.save_identity(vm, self._boot_id)
        return store, reset

    def refresh(self, store: Store, at_hand: VmIdentity) -> VmIdentity | None:
        """Return the identity from IMDS, or the one at hand; None if IMDS names another VM."""
        try:
            vm = _as_kept(self._fetch(self._settings.imds.timeout), at_hand)
        except (ImdsError, IdentityError):
            return at_hand  # the poller says when IMDS does not answer
        if vm.vm_id != at_hand.vm_id:
            return None
        try:
            store.save_identity(vm, self._boot_id)
        except StoreError as error:
            _LOG.warning(str(error), extra={"action": "store_trouble"})
        before = self.confirmed
        self.confirmed = True
        if not before:
            _LOG.info(
                "the VM identity is confirmed", extra={"action": "identity_ok", "vm": vm.name}
            )
        return vm

    def _fetch(self, timeout: float | None) -> VmIdentity:
        return fetch_identity(client(self._settings, timeout), self._settings.identity.tags)


def _as_kept(vm: VmIdentity, kept: VmIdentity | None) -> VmIdentity:
    """Return the identity with the stored spelling of its vmId, from which topics and keys are
    made: Azure writes the same vmId in lower case or in upper case.
    """
    same = kept is not None and kept.vm_id.lower() == vm.vm_id.lower()
    return replace(vm, vm_id=kept.vm_id) if kept is not None and same else vm
