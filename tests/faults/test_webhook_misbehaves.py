"""Webhooks that drip, redirect, want no more or ask for a day, under a running bridge."""

from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path

import pytest
from support.faults.oracle import Figures
from support.faults.sink_hooks import Hooks, Trap, addresses, can_trace

Tell = Callable[[Figures], None]
LINK_LOCAL = "http://169.254.10.20/metadata/scheduledevents?api-version=2020-07-01"
REDIRECTS = (301, 302, 303, 307, 308)


@pytest.fixture
def hooks(tmp_path: Path) -> Iterator[Hooks]:
    """Nothing runs yet; everything is ended with the test."""
    with Hooks(tmp_path) as made:
        yield made


def add_redirects(hooks: Hooks, statuses: Sequence[int], other: Trap) -> None:
    """Receivers that point elsewhere with each of these statuses, and then take everything."""
    targets = {
        "other_host": f"http://{other.host}:{other.port}/hook",
        "link_local": LINK_LOCAL,
        "link_local_as_well": LINK_LOCAL.removeprefix("http:"),
    }
    for name, location in targets.items():
        hooks.add(name)
        for status in statuses:
            hooks.refuse(name, status, headers={"Location": location})


@pytest.mark.parametrize("statuses", [(307,), pytest.param(REDIRECTS, marks=pytest.mark.faults)])
def test_redirects(hooks: Hooks, tmp_path: Path, tell: Tell, statuses: Sequence[int]) -> None:
    """No redirect is followed, neither to another host nor to the metadata address.

    Whatever is not for loopback would go to a proxy of ours, which nobody visits; and by the
    system's own account no connection is even tried to an address that is not this machine's.
    """
    trace = tmp_path / "connections" if can_trace() else None
    with Trap("127.0.0.2") as other, Trap("127.0.0.1") as proxy:
        add_redirects(hooks, statuses, other)
        through = f"http://{proxy.host}:{proxy.port}"
        env = {"HTTP_PROXY": through, "HTTPS_PROXY": through, "NO_PROXY": "127.0.0.0/8"}
        scene = hooks.start(env, trace=trace)
        scene.be_near()
        scene.change()
        figures = scene.judge("webhook: redirects", hooks.received(), rounds=3 * len(statuses))
        assert (other.visits, proxy.visits) == (0, 0)
        assert other.works()
        assert proxy.works()
    tell(figures)
    for name in hooks.servers:
        assert "which is not followed" in scene.reasons(name)[0]
    if trace is not None:
        tried = addresses(trace)
        assert tried
        assert {each for each in tried if not ip_address(each).is_loopback} == set()
