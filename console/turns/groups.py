"""Which VM belongs to which group, how many of a group may be away, and what goes by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final
from zoneinfo import ZoneInfo

from console.config.groups import DAYS, TAG, GroupSettings, Window

TAGS: Final = "tags"
"""The attribute of a member that holds its tags."""
_MAX_KNOWN: Final = 100_000
"""Different VMs whose groups are remembered."""
_MAX_SEEN: Final = 16 * 1024 * 1024
"""Characters of what is remembered of them: tags can be long, and others each time."""
ATTRIBUTES: Final = {
    "site": "site",
    "location": "location",
    "zone": "zone",
    "scaleSet": "scale_set",
    "resourceGroup": "resource_group",
    "name": "name",
}
"""The fields of `settings.FIELDS`, and the attributes of a member that hold them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A VM as groups see it: a value that enrolment bound stands here in place of the VM's own."""

    vm_id: str
    name: str
    site: str = ""
    location: str = ""
    zone: str = ""
    scale_set: str = ""
    resource_group: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    def value(self, name: str) -> str:
        """The value of a group's field; empty if Azure did not name one."""
        if name.startswith(TAG):
            wanted = name.removeprefix(TAG).casefold()
            # Azure: the name of a tag is the same in any case, its value is not.
            return next((v for k, v in self.tags.items() if k.casefold() == wanted), "")
        return str(getattr(self, ATTRIBUTES[name]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The VMs of a rule that share one budget."""

    key: str
    rule: GroupSettings
    size: int
    """How many VMs it has, without those that are retired."""

    @property
    def at_most(self) -> int:
        """How many of its VMs may be away at once."""
        return budget(self.rule.at_most, self.size)


def matches(rule: GroupSettings, member: Member) -> bool:
    """Whether every field of the rule has a pattern that the VM's value fits, in any case."""
    return all(
        any(fnmatchcase(member.value(name).casefold(), glob.casefold()) for glob in globs)
        for name, globs in rule.match.items()
    )


def key_of(rule: GroupSettings, member: Member) -> str | None:
    """The key of the VM's group by that rule; None if the rule does not match the VM."""
    if not matches(rule, member):
        return None
    if not rule.by:
        return rule.name
    # Azure's names are the same in any case; two spellings must not become two budgets.
    return "/".join([rule.name, *(_part(member.value(name)) for name in rule.by)])


def _part(value: str) -> str:
    """A value as it stands in a key, in which a slash separates values."""
    return value.casefold().replace("%", "%25").replace("/", "%2f")


def keys_of(rules: Iterable[GroupSettings], member: Member) -> frozenset[str]:
    """The keys of all groups that the VM belongs to."""
    return frozenset(key for rule in rules if (key := key_of(rule, member)) is not None)


def groups_of(rules: Sequence[GroupSettings], members: Iterable[Member]) -> dict[str, Group]:
    """Every group that has a member, by key, in the order of the rules and of the keys."""
    sizes = Counter(key for member in members for key in keys_of(rules, member))
    return Grouping(rules).groups(sizes)


class Grouping:
    """The rules, and which groups they put VMs into; that is found out once for VMs that are equal
    in all that groups see.
    """

    def __init__(self, rules: Iterable[GroupSettings]) -> None:
        self.rules: Final = tuple(rules)
        names = {name for rule in self.rules for name in (*rule.match, *rule.by)}
        columns = {TAGS if name.startswith(TAG) else ATTRIBUTES[name] for name in names}
        self.columns: Final = tuple(sorted(columns))
        """Attributes of a member that the rules look at."""
        self._rule_of: Final = {rule.name: rule for rule in self.rules}
        self._order: Final = {rule.name: number for number, rule in enumerate(self.rules)}
        self._known: dict[tuple[str | None, ...], frozenset[str]] = {}
        self._seen = 0
        """Characters in the keys of what is remembered."""

    def keys(self, seen: tuple[str | None, ...], member: Callable[[], Member]) -> frozenset[str]:
        """The keys of a VM's groups; `seen` is all that the rules look at, as one value."""
        found = self._known.get(seen)
        if found is None:
            if len(self._known) >= _MAX_KNOWN or self._seen > _MAX_SEEN:
                self._known.clear()
                self._seen = 0
            found = self._known[seen] = keys_of(self.rules, member())
            self._seen += sum(len(each or "") for each in seen)
        return found

    def groups(self, sizes: Mapping[str, int]) -> dict[str, Group]:
        """Every group that has a member, in the order of the rules and of the keys; `sizes` says
        how many members each has, by key.
        """
        # A name has no slash: what stands before the first one is the name of the rule.
        names = {key: key.partition("/")[0] for key in sizes}
        return {
            key: Group(key=key, rule=self._rule_of[names[key]], size=sizes[key])
            for key in sorted(sizes, key=lambda key: (self._order[names[key]], key))
        }


def budget(at_most: int | str, members: int) -> int:
    """How many of so many members may be away at once: a share is rounded down, and at least 1."""
    if isinstance(at_most, int):
        return at_most
    return max(1, members * int(at_most.removesuffix("%")) // 100)


def is_open(windows: Sequence[Window], now: datetime) -> bool:
    """Whether the console may approve by itself now; always if no window is given."""
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
