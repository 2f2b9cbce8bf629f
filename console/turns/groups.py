"""Which VM belongs to which group, how many of a group may be away, and when it may approve."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import sha256
from typing import Final
from zoneinfo import ZoneInfo

from console.config.groups import DAYS, TAG, GroupSettings, Window

TAGS: Final = "tags"
"""The attribute of `Member` that holds its tags."""
_MAX_KNOWN: Final = 100_000
"""For how many different VMs their groups are remembered at most."""
_MAX_SEEN: Final = 16 * 1024 * 1024
"""The limit of all remembered values together, in characters: tags can be long and many."""
ATTRIBUTES: Final = {
    "site": "site",
    "location": "location",
    "zone": "zone",
    "scaleSet": "scale_set",
    "resourceGroup": "resource_group",
    "name": "name",
}
"""The attribute of `Member` that holds the value of each field in `FIELDS` of
`console/config/groups.py`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A VM as groups see it. A value that its enrolment has fixed replaces the VM's own."""

    vm_id: str
    name: str
    site: str = ""
    location: str = ""
    zone: str = ""
    scale_set: str = ""
    resource_group: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    def value(self, name: str) -> str:
        """Return the value of a group's field; empty if Azure did not name one."""
        if name.startswith(TAG):
            wanted = name.removeprefix(TAG).casefold()
            # Azure: the name of a tag is the same in any case, its value is not.
            return next((v for k, v in self.tags.items() if k.casefold() == wanted), "")
        return str(getattr(self, ATTRIBUTES[name]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The VMs of one group's settings that share one budget."""

    key: str
    settings: GroupSettings
    size: int
    """The number of its VMs, without the retired ones."""

    @property
    def at_most(self) -> int:
        """How many of its VMs may be away at once."""
        return budget(self.settings.at_most, self.size)


def matches(settings: GroupSettings, member: Member) -> bool:
    """Check whether the VM's values fit every field of the settings: one of its patterns each, in
    any case.
    """
    return all(_fits(member.value(name), globs) for name, globs in settings.match.items())


def _fits(value: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(value.casefold(), glob.casefold()) for glob in globs)


def key_of(settings: GroupSettings, member: Member) -> str | None:
    """Return the key of the VM's group by these settings; None if they do not match the VM."""
    if not matches(settings, member):
        return None
    if not settings.by:
        return settings.name
    # Azure's names are the same in any case; two spellings must not become two budgets.
    return "/".join([settings.name, *(_part(member.value(name)) for name in settings.by)])


def _part(value: str) -> str:
    """Return a value as it stands in a key, in which a slash separates values."""
    return value.casefold().replace("%", "%25").replace("/", "%2f")


def keys_of(settings: Iterable[GroupSettings], member: Member) -> frozenset[str]:
    """Return the keys of all groups that the VM belongs to."""
    return frozenset(key for each in settings if (key := key_of(each, member)) is not None)


def may_belong_to(group: Group, member: Member) -> bool:
    """Check whether a VM of which some values are not known, and so are empty, may belong to a
    group: whatever is known fits.
    """
    settings = group.settings
    fits = all(
        not (value := member.value(name)) or _fits(value, globs)
        for name, globs in settings.match.items()
    )
    parts = group.key.split("/")[1:]
    return fits and all(
        not (value := member.value(name)) or _part(value) == part
        for name, part in zip(settings.by, parts, strict=True)
    )


def groups_of(settings: Sequence[GroupSettings], members: Iterable[Member]) -> dict[str, Group]:
    """Return every group that has a member, by key, in the order of the settings and of the
    keys.
    """
    sizes = Counter(key for member in members for key in keys_of(settings, member))
    return Grouping(settings).groups(sizes)


class Grouping:
    """Finds the groups of VMs by their settings, and remembers them for VMs whose relevant values
    are equal.
    """

    def __init__(self, settings: Iterable[GroupSettings]) -> None:
        self.settings: Final = tuple(settings)
        names = {name for each in self.settings for name in (*each.match, *each.by)}
        columns = {TAGS if name.startswith(TAG) else ATTRIBUTES[name] for name in names}
        self.columns: Final = tuple(sorted(columns))
        """The attributes of `Member` that the settings use."""
        self._settings_of: Final = {each.name: each for each in self.settings}
        self._order: Final = {each.name: number for number, each in enumerate(self.settings)}
        self._known: dict[tuple[str | None, ...], frozenset[str]] = {}
        self._seen = 0
        """The size of the remembered values, in characters."""

    @cached_property
    def hash(self) -> str:
        """A value that is the same for the same groups, in whatever order they are written."""
        lines = sorted(
            json.dumps(each.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
            for each in self.settings
        )
        return sha256("\n".join(lines).encode(errors="replace")).hexdigest()

    def keys(self, seen: tuple[str | None, ...], member: Callable[[], Member]) -> frozenset[str]:
        """Return the keys of a VM's groups. `seen` has the values of `columns`; `member` makes the
        VM, and is called only if they are new.
        """
        found = self._known.get(seen)
        if found is None:
            if len(self._known) >= _MAX_KNOWN or self._seen > _MAX_SEEN:
                self._known.clear()
                self._seen = 0
            found = self._known[seen] = keys_of(self.settings, member())
            self._seen += sum(len(each or "") for each in seen)
        return found

    def groups(self, sizes: Mapping[str, int]) -> dict[str, Group]:
        """Return every group that has a member, by key, in the order of the settings and of the
        keys; `sizes` has the number of members by key.
        """
        # A name has no slash: what stands before the first one is the name of its settings.
        names = {key: key.partition("/")[0] for key in sizes}
        return {
            key: Group(key=key, settings=self._settings_of[names[key]], size=sizes[key])
            for key in sorted(sizes, key=lambda key: (self._order[names[key]], key))
        }


def budget(at_most: int | str, members: int) -> int:
    """Return how many of `members` VMs may be away at once; a share is rounded down, to
    at least 1.
    """
    if isinstance(at_most, int):
        return at_most
    return max(1, members * int(at_most.removesuffix("%")) // 100)


def is_open(windows: Sequence[Window], now: datetime) -> bool:
    """Check whether groups may approve by themselves now: in a window, or always without one."""
    return not windows or any(_is_within(window, now) for window in windows)


def _is_within(window: Window, now: datetime) -> bool:
    here = now.astimezone(ZoneInfo(window.zone))
    today = DAYS[here.weekday()]
    at = here.time().replace(tzinfo=None)
    if window.begin < window.end:
        return today in window.days and window.begin <= at < window.end
    if at >= window.begin:
        return today in window.days
    # After midnight the window is still the one that began the day before.
    yesterday = DAYS[(here - timedelta(days=1)).weekday()]
    return at < window.end and yesterday in window.days
