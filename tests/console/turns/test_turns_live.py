"""Turns from outside: real bridges whose programs prepare, a real broker, and consoles."""

from __future__ import annotations

import os
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from support.console.decision_bench import audit, decide
from support.console.preparing_cluster import PreparingCluster, reaches, turn
from support.eventually import eventually
from support.postgresql import PostgreSql

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="needs POSIX scripts"),
    pytest.mark.timeout(400),
]


def test_the_second_waits_for_the_first(tmp_path: Path) -> None:
    """Of two overlapping events, both are prepared and approved, one after the other."""
    with PreparingCluster(tmp_path, vms=3, heartbeat="10") as cluster, cluster.console() as console:
        first = cluster.announce_for(0)
        reaches(console, first, "approving", "away")
        second = cluster.announce_for(1)
        reaches(console, second, "waiting")
        waiting = console.events()[second]
        assert [each["name"] for each in waiting["turn"]["heldBy"]] == ["web-0"]
        assert waiting["decision"]["state"] == "none"
        (group,) = console.get("groups")["items"]
        assert (group["key"], group["members"], group["atMost"]) == ("db", 3, 1)
        assert [(each["name"], each["eventId"]) for each in group["away"]] == [("web-0", first)]
        assert [each["eventId"] for each in group["waiting"]] == [second]
        assert group["waiting"][0]["behind"] == [first]
        assert [*console.events(group="db")] == [*console.events()]
        assert console.events(group="dbs") == {}
        shown = console.run("groups").stdout.splitlines()
        assert shown[0] == "db: 1 of 3 away, at most 1 may be"
        assert shown[1].startswith(f"  away   web-0 (has its turn for {first}) since ")
        assert shown[2] == f"  waits  {second}: 1 of db away, and 1 may be"
        for path in ("/", f"/events/{second}", "/groups"):
            page = console.http.get(console.url + path, timeout=10)
            assert page.status_code == 200
            assert "web-0" in page.text
        assert 'name="force"' in console.http.get(f"{console.url}/events/{second}").text
        assert cluster.runs(1) == []
        eventually(lambda: cluster.approved(0) == [first], what="the first approval", timeout=60)
        assert cluster.words(0)[:2] == ["scheduled begun", "scheduled done"]
        eventually(lambda: "started done" in cluster.words(0), what="the start", timeout=60)
        assert cluster.runs(1) == []
        cluster.simulators[0].end_event(first)
        reaches(console, first, "over")
        eventually(lambda: cluster.approved(1) == [second], what="the second", timeout=60)
        eventually(lambda: "started done" in cluster.words(1), what="its start", timeout=60)
        cluster.simulators[1].end_event(second)
        reaches(console, second, "over")
        assert cluster.most_away() == 1
        rows = [(row["action"], row["actor"], row["eventId"]) for row in audit(console)]
        both = [(act, "group:db", each) for each in (first, second) for act in ACTS]
        assert rows == both
        kinds = [
            (each["kind"], each["state"])
            for each in console.get(f"events/{first}")["timeline"]
            if each["kind"] == "preparation"
        ]
        assert [state for _, state in kinds] == ["preparing", "prepared", "recovered"]


_NUMBERS = count(1)
ACTS = ("take_turn", "prepare", "approve")


def test_a_vm_that_cannot_prepare_is_not_approved(tmp_path: Path) -> None:
    """If a VM's program gives up, nothing is approved, and a person may approve the event all the
    same.
    """
    with PreparingCluster(tmp_path, vms=2, heartbeat="10") as cluster, cluster.console() as console:
        (cluster.home(0) / "code").write_text("65")
        event_id = cluster.announce_for(0)
        reaches(console, event_id, "failed")
        event = console.events()[event_id]
        assert event["turn"]["reason"] == "web-0 could not prepare"
        refused = decide(console, event)
        assert refused.status_code == 409
        assert refused.json()["turn"]["state"] == "failed"
        assert cluster.effective == []
        assert turn(console, event_id) == "failed"


def test_a_person_waits_for_the_group_or_overrides_it(tmp_path: Path) -> None:
    """A person's approval beyond the budget is answered 409 with the holders. With force both VMs
    are away, and the audit names the person.
    """
    cluster = PreparingCluster(tmp_path, vms=3, heartbeat="10")
    cluster.group = {"name": "db", "match": {"name": ["web-*"]}}
    with cluster, cluster.console() as console:
        first, second = cluster.announce_for(0), cluster.announce_for(1)
        for event_id in (first, second):
            eventually(
                lambda event_id=event_id: (  # type: ignore[misc]
                    console.events().get(event_id, {}).get("decision", {}).get("state") == "due"
                ),
                what="due",
                timeout=60,
            )
        made = decide(console, console.events()[first])
        assert (made.status_code, made.json()) == (202, {"jti": None, "state": "approving"})
        reaches(console, first, "approving", "away")
        reaches(console, second, "waiting")
        refused = decide(console, console.events()[second])
        assert refused.status_code == 409
        assert [each["name"] for each in refused.json()["turn"]["heldBy"]] == ["web-0"]
        words = ("--reason", "it cannot wait", "--yes", "--timeout", "120")
        done = console.run("approve", second, *words)
        assert done.returncode == 1
        assert "too many VMs of its group are away" in done.stderr
        done = console.run("approve", second, *words, "--force")
        assert done.returncode == 0, done.stderr
        states = [line.split()[0] for line in done.stdout.splitlines() if second in line]
        assert states == ["preparing", "sent", "accepted", "posted", "confirmed"]
        assert cluster.approved(1) == [second]
        forced = [row for row in audit(console) if row["action"] == "force_turn"]
        assert [row["eventId"] for row in forced] == [second]


def test_a_console_that_starts_again_carries_turns_on(tmp_path: Path) -> None:
    """If the console is killed while a VM prepares, the program runs once and the event is approved
    once.
    """
    with PreparingCluster(tmp_path, vms=2, heartbeat="10") as cluster, cluster.console() as console:
        (cluster.home(0) / "hold").touch()
        first = cluster.announce_for(0)
        eventually(lambda: cluster.words(0) == ["scheduled begun"], what="preparing", timeout=60)
        second = cluster.announce_for(1)
        reaches(console, second, "waiting")
        console.kill()
        (cluster.home(0) / "hold").unlink()
        console.start()
        eventually(lambda: cluster.approved(0) == [first], what="the approval", timeout=60)
        assert cluster.words(0)[:2] == ["scheduled begun", "scheduled done"]
        assert cluster.runs(1) == []
        reaches(console, second, "waiting")
        assert cluster.most_away() == 1


def test_another_console_goes_on(tmp_path: Path, postgresql: PostgreSql) -> None:
    """If one of two consoles on PostgreSQL is killed while a VM prepares, the other one approves
    the event.
    """
    url = postgresql.database(f"live_{next(_NUMBERS)}")
    with PreparingCluster(tmp_path, vms=2, heartbeat="10") as cluster, ExitStack() as stack:
        one, two = [
            stack.enter_context(cluster.console(name, DATABASE=url)) for name in ("one", "two")
        ]
        (cluster.home(0) / "hold").touch()
        first = cluster.announce_for(0)
        eventually(lambda: cluster.words(0) == ["scheduled begun"], what="preparing", timeout=60)
        second = cluster.announce_for(1)
        reaches(two, second, "waiting")
        assert turn(one, second) == "waiting"
        one.kill()
        (cluster.home(0) / "hold").unlink()
        eventually(lambda: cluster.approved(0) == [first], what="the approval", timeout=60)
        reaches(two, first, "away")
        assert cluster.runs(1) == []
        cluster.simulators[0].end_event(first)
        eventually(lambda: cluster.approved(1) == [second], what="the second", timeout=60)
        assert cluster.most_away() == 1
        assert cluster.words(0).count("scheduled begun") == 1


def test_only_the_console_with_the_latest_groups_gives_turns(
    tmp_path: Path, postgresql: PostgreSql
) -> None:
    """While groups are changed, two consoles have different ones. The one that was started last
    gives turns; the other one says so, and refuses what a person approves there without force.
    """
    url = postgresql.database(f"live_{next(_NUMBERS)}")
    with PreparingCluster(tmp_path, vms=3, heartbeat="5") as cluster, ExitStack() as stack:
        old = stack.enter_context(cluster.console("one", DATABASE=url, GROUPS="[]"))
        new = stack.enter_context(cluster.console("two", DATABASE=url))
        first = cluster.announce_for(0)
        reaches(new, first, "away")
        eventually(lambda: "other_groups" in old.log, what="the old console's word")
        second = cluster.announce_for(1)
        reaches(new, second, "waiting")
        refused = decide(old, old.events()[second])
        assert refused.status_code == 409
        assert "with other groups" in refused.json()["error"]
        assert decide(new, new.events()[second]).status_code == 409
        assert cluster.most_away() == 1
        assert decide(old, old.events()[second], force=True).status_code == 202
