"""PostgreSQL fails over to a copy that lagged, under a console that goes on running."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.console.decision_bench import decide
from support.console.preparing_cluster import PreparingCluster
from support.console.process import ConsoleProcess
from support.eventually import eventually
from support.postgresql import PostgreSql

pytestmark = pytest.mark.skipif(os.name != "posix", reason="copies PostgreSQL's files")


@pytest.fixture
def cluster(tmp_path: Path) -> PreparingCluster:
    """Three VMs of which one may be away; what goes is for people to approve."""
    cluster = PreparingCluster(tmp_path, vms=3, heartbeat="2")
    cluster.group = {"name": "db", "match": {"name": ["web-*"]}}
    return cluster


def reaches_people(console: ConsoleProcess, event_id: str) -> None:
    """Wait until a decision about the event is due."""
    eventually(lambda: _is_due(console, event_id), what="a due decision", timeout=60)


def _is_due(console: ConsoleProcess, event_id: str) -> bool:
    event = _listed(console).get(event_id)
    return event is not None and bool(event["decision"]["state"] == "due")


def _listed(console: ConsoleProcess) -> dict[str, Any]:
    """Return the events by id; none while the console is without its database."""
    answer = console.http.get(f"{console.url}/api/v1/events", timeout=10)
    return {each["eventId"]: each for each in answer.json()["items"]} if answer.ok else {}


def test_what_was_lost_is_read_again_before_anything_goes(cluster: PreparingCluster) -> None:
    """The last seconds are lost, in which a VM was prepared, approved and taken. Its state is read
    again from the broker, so nobody approves a second one within the budget.
    """
    try:
        server = PostgreSql()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    with server, cluster, cluster.console(DATABASE=server.database("turns")) as console:
        eventually(lambda: list(console.contacts().values()) == ["heard"] * 3, what="all heard")
        first = cluster.announce_for(0, minutes=600)
        second = cluster.announce_for(1, minutes=600)
        for event_id in (first, second):
            reaches_people(console, event_id)
        server.stop()
        server.copy()
        server.start()
        reaches_people(console, first)
        assert decide(console, console.events()[first]).status_code == 202
        eventually(
            lambda: "started done" in cluster.words(0), what="the first is taken", timeout=60
        )
        server.stop()
        server.put_back()
        server.start()
        eventually(lambda: "listening_again" in console.log, what="the loss is seen", timeout=30)
        eventually(lambda: second in _listed(console), what="the second event", timeout=60)
        answer = decide(console, console.events()[second])
        assert answer.status_code == 409, answer.text
        eventually(
            lambda: console.events()[first]["turn"]["state"] != "none",
            what="what web-0 told is known again",
            timeout=60,
        )
        assert decide(console, console.events()[second]).status_code == 409
        assert cluster.most_away() == 1
