"""Webhooks that drip, redirect, want no more or ask for a day, under a running bridge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from ipaddress import ip_address
from pathlib import Path

import pytest
from support.eventually import eventually
from support.faults.oracle import Figures
from support.faults.sink_hooks import Hooks, Trap, addresses, can_trace
from support.sinks.throwaway_ca import ThrowawayCa

Tell = Callable[[Figures], None]
LINK_LOCAL = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
REDIRECTS = (301, 302, 303, 307, 308)
SOON = timedelta(seconds=4)


@pytest.fixture
def hooks(tmp_path: Path) -> Iterator[Hooks]:
    """Nothing runs yet; everything is ended with the test."""
    with Hooks(tmp_path) as made:
        yield made


def date(moment: datetime) -> str:
    """A moment as HTTP writes it."""
    return format_datetime(moment, usegmt=True)


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


@pytest.mark.parametrize("dripping", [False, pytest.param(True, marks=pytest.mark.faults)])
def test_answers_that_never_end(hooks: Hooks, tell: Tell, dripping: bool) -> None:
    """A head decides; the body that follows for ever costs neither time nor memory.

    Where the head itself drips, that is no answer, and the record is sent again.
    """
    hooks.add("drip_body").answer(status=200, body=b"x" * 4000, mode="drip-body", times=2)
    hooks.add("endless").answer(status=200, mode="endless", times=2)
    hooks.add("endless_refusal")
    hooks.refuse("endless_refusal", 503, mode="endless", times=2)
    if dripping:
        hooks.add("drip_head")
        hooks.refuse("drip_head", 200, mode="drip-headers")
    scene = hooks.start()
    scene.be_near()
    scene.change()
    scene.wait_for_empty_outbox()
    peak = scene.peak_memory()
    more = f"peak {peak / 2**20:.0f} MiB"
    tell(scene.judge("webhook: answers without end", hooks.received(), rounds=7, more=more))
    assert (scene.reasons("drip_body"), scene.reasons("endless")) == ([], [])
    assert "503" in scene.reasons("endless_refusal")[0]
    assert not dripping or "no answer within 15 s" in scene.reasons("drip_head")[0]
    assert peak < 200 * 2**20


def test_gone(hooks: Hooks, tell: Tell) -> None:
    """After 410 nothing more is sent until a person says so; then everything is."""
    hooks.add("gone")
    hooks.refuse("gone", 410)
    hooks.add("other")
    scene = hooks.start()
    scene.be_near()
    scene.wait_for_trouble("gone", "410 Gone")
    scene.change()
    eventually(
        lambda: hooks.asked("other") == len(scene.file.read_bytes().splitlines()),
        what="everything at the other webhook",
    )
    assert hooks.asked("gone") == 1
    scene.retry("gone")
    tell(scene.judge("webhook: 410 Gone", hooks.received()))


@pytest.mark.faults
def test_retry_after(hooks: Hooks, tell: Tell) -> None:
    """A wait that is asked for is kept, unless it is absurd, or an event is near.

    A day and a year are waited for, quietly, until an event for this VM is near. A date that comes
    soon is kept to. A negative number and a date long past are no wait at all.
    """
    soon = datetime.now(UTC) + SOON
    asked = {
        "a_day": "86400",
        "a_year": date(datetime.now(UTC) + timedelta(days=366)),
        "soon": date(soon),
        "negative": "-5",
        "long_ago": date(datetime(1994, 11, 6, tzinfo=UTC)),
    }
    for name, told in asked.items():
        hooks.add(name)
        hooks.refuse(name, 503, headers={"Retry-After": told})
    scene = hooks.start()
    for name in asked:
        scene.wait_for_trouble(name, "503")
    scene.change()
    for name in ("soon", "negative", "long_ago"):
        eventually(lambda n=name: hooks.asked(n) > 1, what=f"another request to {name}")  # type: ignore[misc]
    wall = time.time() - time.monotonic()
    # HTTP's dates have whole seconds.
    assert hooks.proxies["soon"].passed[-1][0] + wall >= int(soon.timestamp())
    assert (hooks.asked("a_day"), hooks.asked("a_year")) == (1, 1)
    scene.be_near()
    tell(scene.judge("webhook: Retry-After", hooks.received(), rounds=len(asked)))


def test_a_certificate_that_has_expired(hooks: Hooks, tmp_path: Path, tell: Tell) -> None:
    """A receiver whose certificate has expired gets no request; once it is renewed, everything."""
    ca = ThrowawayCa(tmp_path / "ca")
    expired = hooks.add("renewed", tls=ca.server("expired", days=-1))
    scene = hooks.start({"SSL_CERT_FILE": str(ca.cert)})
    scene.be_near()
    scene.change()
    scene.wait_for_trouble("renewed", "certificate has expired")
    assert expired.requests() == []
    hooks.servers["renewed"] = hooks.serve(ca.server("fresh"))
    hooks.proxies["renewed"].target = hooks.servers["renewed"].port
    tell(scene.judge("webhook: certificate expired", hooks.received()))
    assert expired.requests() == []
