"""Groups: which VM belongs where, how many may be away, and when the console acts by itself."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime

import pytest
from pydantic import TypeAdapter, ValidationError
from support.console.reported_event import reported

from console.config.groups import GroupSettings, check_names
from console.turns.groups import (
    Grouping,
    Member,
    budget,
    groups_of,
    is_open,
    key_of,
    keys_of,
)

DB = Member(
    vm_id="v1",
    name="db-1",
    site="west",
    location="westeurope",
    zone="1",
    scale_set="db",
    resource_group="Prod",
    tags={"Role": "db", "team": "orders"},
)


def test_tags_that_change_all_the_time_take_a_bounded_memory() -> None:
    """A VM that reports other, long tags with each heartbeat uses a limited amount of memory."""
    grouping = Grouping([settings(by=["tag:role"])])
    tracemalloc.start()
    for number in range(40):
        seen = (f"{number}".zfill(1024 * 1024),)
        assert grouping.keys(seen, lambda: DB) == {"etcd/db"}
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 24 * 1024 * 1024


def settings(**keys: object) -> GroupSettings:
    """Return a group as it stands in the settings."""
    return GroupSettings.model_validate({"name": "etcd", **keys})


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ({}, True),
        ({"name": ["db-*"]}, True),
        ({"name": ["DB-?"]}, True),
        ({"name": ["web-*"]}, False),
        ({"name": ["web-*", "db-1"]}, True),
        ({"name": ["db-*"], "zone": ["2"]}, False),
        ({"resourceGroup": ["prod"]}, True),
        ({"tag:role": ["db"]}, True),
        ({"tag:owner": ["*"]}, True),
        ({"tag:owner": ["?*"]}, False),
    ],
)
def test_a_rule_matches_if_each_field_fits_one_of_its_patterns(
    match: dict[str, list[str]], expected: bool
) -> None:
    """A rule matches if each of its fields matches one of that field's patterns, in any case."""
    assert (key_of(settings(match=match), DB) is not None) == expected


def test_a_key_is_the_name_and_the_values_of_by() -> None:
    """VMs that are equal in the fields of `by` are one group, whatever the case of the values."""
    by = settings(by=["site", "resourceGroup"])
    assert key_of(by, DB) == "etcd/west/prod"
    assert key_of(by, Member(vm_id="v2", name="x", site="West", resource_group="PROD")) == (
        "etcd/west/prod"
    )
    assert key_of(settings(), DB) == "etcd"


def test_values_with_a_slash_make_no_two_groups_one() -> None:
    """Values with a slash, such as those of tags, do not make two groups one."""
    by = settings(by=["tag:app", "tag:shard"])
    keys = {
        key_of(by, Member(vm_id="v", name="x", tags={"app": app, "shard": shard}))
        for app, shard in (("shop/eu", "1"), ("shop", "eu/1"))
    }
    assert len(keys) == 2


def test_a_vm_can_be_in_several_groups() -> None:
    """A VM is a member of one group of each rule that matches it."""
    rules = [settings(), settings(name="zones", by=["zone"])]
    assert keys_of(rules, DB) == {"etcd", "zones/1"}
    assert {key: each.size for key, each in groups_of(rules, [DB]).items()} == {
        "etcd": 1,
        "zones/1": 1,
    }


@pytest.mark.parametrize(
    ("at_most", "members", "expected"),
    [(1, 3, 1), (2, 3, 2), ("25%", 3, 1), ("25%", 8, 2), ("25%", 11, 2), ("100%", 5, 5)],
)
def test_a_share_is_rounded_down_and_at_least_one(
    at_most: int | str, members: int, expected: int
) -> None:
    """A share is rounded down, and allows at least one VM."""
    assert budget(at_most, members) == expected


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "name"),
        ({"at_most": 0}, "at_most"),
        ({"at_most": True}, "at_most"),
        ({"at_most": "0%"}, "at_most"),
        ({"at_most": "half"}, "at_most"),
        ({"match": {"nmae": ["x"]}}, "match"),
        ({"match": {"tag:": ["x"]}}, "match"),
        ({"match": {"name": []}}, "match"),
        ({"by": ["rack"]}, "by"),
        ({"most": 1}, "most"),
        ({"approve": {"type": ["Reboot"]}}, "approve"),
        ({"window": [{"from": "02:00", "to": "25:00"}]}, "window"),
        ({"window": [{"from": "02:00", "to": "02:00"}]}, "window"),
        ({"window": [{"from": "02:00", "to": "03:00", "zone": "Mars/Base"}]}, "window"),
        ({"window": [{"days": ["Someday"], "from": "02:00", "to": "03:00"}]}, "window"),
        ({"rest": -1}, "rest"),
    ],
)
def test_what_is_not_a_group_is_refused(keys: dict[str, object], problem: str) -> None:
    """A typo in a group is an error that names its key."""
    with pytest.raises(ValidationError) as refused:
        settings(**keys)
    assert problem in {str(each["loc"][0]) for each in refused.value.errors()}


def test_a_name_that_stands_twice_is_refused() -> None:
    """Two groups with one name are refused, because they would share a key."""
    with pytest.raises(ValueError, match="two groups have the name 'etcd'"):
        check_names((settings(), settings(name="ETCD")))


SATURDAY_NIGHT = [
    {"days": ["Sat"], "from": "22:00", "to": "06:00", "zone": "Europe/Berlin"},
]


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2026-06-06T19:59", False),  # 21:59 in Berlin, in summer
        ("2026-06-06T20:00", True),
        ("2026-06-07T03:59", True),  # Sunday, in the window that began on Saturday
        ("2026-06-07T04:00", False),
        ("2026-06-07T20:30", False),  # Sunday evening
        ("2026-06-06T02:00", False),  # early on Saturday: that is Friday's night
        ("2026-12-05T21:00", True),  # 22:00 in Berlin, in winter
        ("2026-12-05T20:59", False),
    ],
)
def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins(
    moment: str, expected: bool
) -> None:
    """A window over midnight belongs to the day on which it begins; days, hours and summer time are
    those of its own zone.
    """
    windows = settings(window=SATURDAY_NIGHT).window
    assert is_open(windows, datetime.fromisoformat(moment).replace(tzinfo=UTC)) == expected


def test_without_a_window_it_is_always_open() -> None:
    """A group without a window approves at all hours."""
    assert is_open((), datetime(2026, 6, 6, tzinfo=UTC))


@pytest.mark.parametrize(
    ("approve", "duration", "expected"),
    [
        (None, 9, False),
        ({}, None, True),
        ({"event_type": ["freeze"]}, None, True),
        ({"event_type": ["Reboot"]}, None, False),
        ({"event_source": ["User"]}, None, False),
        ({"max_duration": 10}, 9, True),
        ({"max_duration": 10}, 11, False),
        ({"max_duration": 10}, None, False),
        ({"max_duration": 10}, -1, False),
    ],
)
def test_a_group_approves_what_its_keys_match(
    approve: dict[str, object] | None, duration: int | None, expected: bool
) -> None:
    """A group without `approve` leaves all events to people; an event without a known duration
    exceeds every limit.
    """
    wanted = settings(approve=approve).approve
    found = wanted is not None and wanted.matches(reported(duration=duration))
    assert found == expected


def test_an_empty_list_of_types_is_an_error() -> None:
    """An empty list of types is an error: its owner would mean that no event matches, and every
    event would.
    """
    with pytest.raises(ValidationError, match="would match nothing; leave the key out"):
        settings(approve={"event_type": []})


def test_settings_are_read_from_json() -> None:
    """The documented list of `SEB_CONSOLE_GROUPS` is read."""
    text = b'[{"name": "etcd", "match": {"tag:role": ["etcd"]}, "at_most": 1, "approve": {}}]'
    found = TypeAdapter(tuple[GroupSettings, ...]).validate_json(text)
    assert found[0].match == {"tag:role": ("etcd",)}
