"""A service through a redeployment: the short form of `make survive`."""

from __future__ import annotations

import shutil
import sys

import pytest

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
