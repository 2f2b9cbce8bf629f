"""Which retained messages of VMs have come over a connection, and which must be asked for.

A broker drops what exceeds its queue for one client, so of a large fleet some of them never come by
a subscription to all. What a VM sends itself shows that there must be more of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import chain, islice
from typing import Final

RETAINED: Final = ("state", "status")
"""The last levels of the topics on which bridges retain their last message."""

_SOON_SECONDS: Final = 5.0
"""How long a VM that is new may take to send them by itself."""
_TRIES: Final = 3
_ANSWER_SECONDS: Final = 10.0

MAX_VMS: Final = 20_000
"""Of how many VMs the topics are remembered. A stranger may send in the name of any number."""


class RetainedTopics:
    """Remembers, for each VM, the topics that have come. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._come: set[str] = set()
        self._missing: dict[str, float] = {}
        """Topics of VMs that were heard, and when each was first missed."""
        self._wanted: dict[str, None] = {}
        """Topics that are wanted again."""
        self._asked: dict[str, list[float]] = {}
        """When each topic was asked for."""
        self._places: dict[str, str] = {}
        """What the topics of each VM begin with, by vmId."""

    def forget(self) -> None:
        """Forget everything: all retained messages are about to come again."""
        with self._lock:
            self._come.clear()
            self._missing.clear()
            self._wanted.clear()
            self._asked.clear()
            self._places.clear()

    def note(self, topic: str, now: float) -> None:
        """Note that a message of a VM has come; `now`: monotonic seconds."""
        vm = topic.rpartition("/")[0]
        vm_id = vm.rpartition("/")[2]
        leaf = topic.rpartition("/")[2]
        with self._lock:
            if vm_id not in self._places and len(self._places) >= MAX_VMS:
                return
            self._places[vm_id] = vm
            if leaf in RETAINED:
                self._come.add(topic)
                self._missing.pop(topic, None)
                return
            for wanted in (f"{vm}/{other}" for other in RETAINED):
                if wanted not in self._come and self._may_ask(wanted, now):
                    self._missing.setdefault(wanted, now)

    def want(self, vm_ids: Iterable[str]) -> None:
        """Want the topics of these VMs again, before all others."""
        with self._lock:
            for vm in (self._places[vm_id] for vm_id in vm_ids if vm_id in self._places):
                self._wanted.update((f"{vm}/{leaf}", None) for leaf in RETAINED)

    def next_to_ask(self, count: int, now: float) -> list[str]:
        """Return some topics that are wanted again, or that have not come although their VMs were
        heard for a while: a new VM sends them soon by itself. `now`: monotonic seconds.
        """
        with self._lock:
            late = (topic for topic, at in self._missing.items() if at <= now - _SOON_SECONDS)
            topics = list(islice(chain(self._wanted, late), count))
            for topic in topics:
                self._asked.setdefault(topic, []).append(now)
                self._wanted.pop(topic, None)
                self._missing.pop(topic, None)
            return topics

    def _may_ask(self, topic: str, now: float) -> bool:
        """Check whether to ask for a topic of a VM: the broker may drop the answer too, and a VM
        may retain nothing there.
        """
        asked = self._asked.get(topic, ())
        return not asked or (len(asked) < _TRIES and now >= asked[-1] + _ANSWER_SECONDS)
