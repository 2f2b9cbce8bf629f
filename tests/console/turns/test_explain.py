"""Groups in sentences."""

from __future__ import annotations

import pytest

from console.config.groups import GroupSettings
from console.turns.explain import members, sentence
from console.turns.groups import Member, groups_of


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, "db: every VM; at most 1 may be away at once; people approve."),
        (
            {"match": {"tag:role": ["db"], "zone": ["1", "2"]}, "by": ["site"], "at_most": "25%"},
            (
                "db: VMs whose tag:role is db and zone is 1 or 2, one group for each site; "
                "at most 25% of them may be away at once; people approve."
            ),
        ),
        (
            {
                "approve": {"event_type": ["Freeze"], "max_duration": 10},
                "rest": 60,
                "window": [{"days": ["Sat"], "from": "22:00", "to": "06:00"}],
            },
            (
                "db: every VM; at most 1 may be away at once, and each rests 60 s after it is "
                "back; every Freeze event that is to last at most 10 s is for the console to "
                "approve by itself, "
                "Sat from 22:00 to 06:00 UTC."
            ),
        ),
    ],
)
def test_a_group_is_explained_in_a_sentence(keys: dict[str, object], expected: str) -> None:
    """The sentence says who is in the group, how many may be away, and what is approved without a
    person.
    """
    assert sentence(GroupSettings.model_validate({"name": "db", **keys})) == expected


def test_members_are_counted_and_named() -> None:
    """The sentence has the number of members, and the names of the first five."""
    rule = GroupSettings.model_validate({"name": "db", "at_most": "50%"})
    fleet = [Member(vm_id=f"v{n}", name=f"db-{n}") for n in range(1, 8)]
    (group,) = groups_of([rule], fleet).values()
    assert members(group, [each.name for each in fleet]) == (
        "db: 7 VMs (db-1, db-2, db-3, db-4, db-5 and 2 more), at most 3 away"
    )
