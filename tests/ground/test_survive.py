"""A service through a redeployment: the short form of `make survive`."""

from __future__ import annotations

import shutil
import sys

import pytest
from support.console.decision_bench import audit

PATIENCE = 1.0
"""Seconds that a client waits for an answer: an unlucky write costs that."""

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="it needs signals and /proc of Linux"),
    pytest.mark.skipif(shutil.which("etcdctl") is None, reason="etcd is not installed"),
    pytest.mark.timeout(300),
]


def test_etcd_through_a_redeployment_of_its_leader() -> None:
    """With seb, clients of etcd lose no write when the leader's VM goes, and hardly notice it."""
    from tests.survive import scenes  # noqa: PLC0415  # needs Linux
    from tests.survive.services.etcd import Etcd  # noqa: PLC0415

    redeploy = next(each for each in scenes.SCENES if each.name == "redeploy")
    with Etcd() as cluster:
        untouched = scenes.measure(cluster, redeploy, with_seb=False)
        prepared = scenes.measure(cluster, redeploy, with_seb=True)
    shutil.rmtree(cluster.directory, ignore_errors=True)
    assert prepared["approved"], prepared
    assert prepared["lost"] == 0, prepared
    assert prepared["most_away"] == 1
    # The client's own limit is 2 s: a write that is lost between two members costs that at most.
    assert prepared["gap_s"] <= max(untouched["gap_s"], 2.5), (untouched, prepared)


def test_etcd_with_a_group_through_two_redeployments_that_overlap() -> None:
    """Untouched, two of three members are away at once, and writes fail. With a group at the
    console both events are approved before their time, one after the other, without a gap.
    """
    from tests.survive import scenes  # noqa: PLC0415  # needs Linux
    from tests.survive.services.etcd import Etcd  # noqa: PLC0415

    two = next(each for each in scenes.SCENES if each.name == "group")
    with Etcd() as cluster:
        untouched = scenes.measure(cluster, two, with_seb=False, patience=PATIENCE)
        in_turn = scenes.measure(cluster, two, with_seb=True, patience=PATIENCE)
        rows = [(row["action"], row["actor"], row["eventId"]) for row in audit(cluster.console)]
    shutil.rmtree(cluster.directory, ignore_errors=True)
    assert untouched["most_away"] == 2
    assert untouched["gap_s"] > 5, untouched
    assert in_turn["approved"], in_turn
    assert in_turn["most_away"] == 1, in_turn
    assert in_turn["lost"] == 0, in_turn
    assert in_turn["gap_s"] <= 2, (untouched, in_turn)
    first, second = dict.fromkeys(event_id for _, _, event_id in rows)
    acts = ("take_turn", "prepare", "approve")
    assert rows == [(act, "group:etcd", each) for each in (first, second) for act in acts]
