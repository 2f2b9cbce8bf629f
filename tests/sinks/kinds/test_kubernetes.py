"""The kubernetes sink: what it shows on a node, which pods it evicts, and that it removes all of
that again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.kubernetes.fake_api import FakeApi

from sinks.base import SinkContext, SinkError, SinkRejected
from sinks.kinds.kubernetes import KubernetesSink
from sinks.kinds.kubernetes.marks import ANNOTATION, CONDITION, TAINT
from sinks.kinds.kubernetes.settings import KubernetesSettings
from sinks.samples import sample_pending
from sinks.testing import (
    SAMPLE_TIME,
    SAMPLE_VM,
    SinkContract,
    sample_context,
    sample_record,
)
from wire.event import Event
from wire.fields import read_object
from wire.moment import rfc3339
from wire.record import EVENT_ENDED, Record
from wire.state import PendingEvent

NODE = "aks-1"
OneLook = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def cluster() -> Iterator[FakeApi]:
    """A cluster with one node."""
    with FakeApi() as api:
        api.add_node(NODE)
        yield api


@pytest.fixture(autouse=True)
def _looks_at_pods_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in's pods leave at once."""
    monkeypatch.setattr("sinks.kinds.kubernetes.sink._POD_POLL_SECONDS", 0.01)


@pytest.fixture
def one_look(monkeypatch: pytest.MonkeyPatch) -> OneLook:
    """Makes a delivery list the pods only once, for tests in which a budget holds them."""

    @contextmanager
    def passes() -> Iterator[None]:
        with monkeypatch.context() as patched:
            patched.setattr("sinks.kinds.kubernetes.sink._PASS_SECONDS", 0.0)
            yield

    return passes


class KubernetesDestination:
    """The cluster as a destination of the conformance suite."""

    def __init__(self, path: Path) -> None:
        self.api = FakeApi()
        self.api.start()
        self.api.add_node(NODE)
        config = self.api.kubeconfig(path / "config")
        self.settings: Mapping[str, Any] = {"node": NODE, "kubeconfig": config}
        self.secrets: Sequence[str] = ("a-secret-token",)

    def received(self) -> Sequence[bytes]:
        """Return the records in the Events of the node."""
        name = "scheduled-events-bridge/record"
        return [each["metadata"]["annotations"][name].encode() for each in self.api.events]

    def stop(self) -> None:
        """Become unreachable."""
        self.api.stop()

    def start(self) -> None:
        """Become reachable again."""
        self.api.start()


class TestContract(SinkContract):
    """The contract of every sink, for the kubernetes sink."""

    sink_class = KubernetesSink

    @pytest.fixture
    def destination(self, tmp_path: Path) -> Iterator[KubernetesDestination]:
        """A cluster that can go away."""
        made = KubernetesDestination(tmp_path)
        yield made
        made.stop()


MakeBench = Callable[..., "KubernetesSinkBench"]


@pytest.fixture
def make_bench(cluster: FakeApi, tmp_path: Path) -> Iterator[MakeBench]:
    """Return a function that makes a bench with given settings, and close its connections at the
    end.
    """
    made: list[KubernetesSinkBench] = []

    def make(**settings: object) -> KubernetesSinkBench:
        made.append(KubernetesSinkBench(cluster, tmp_path, **settings))
        return made[-1]

    yield make
    for bench in made:
        bench.sink.close()


class KubernetesSinkBench:
    """A sink on a cluster, with the pending events that a bridge would know."""

    def __init__(self, cluster: FakeApi, path: Path, **settings: object) -> None:
        self.cluster = cluster
        self.pending: dict[str, PendingEvent] = {}
        self.has_polled = True
        self.now = SAMPLE_TIME
        self.set_back = timedelta()
        """By how much the clock was set back since the events appeared."""
        self._settings = KubernetesSettings(
            kind="kubernetes", node=NODE, kubeconfig=cluster.kubeconfig(path / "c"), **settings
        )
        self.sink: KubernetesSink = None  # type: ignore[assignment]  # made by the next line
        self.restart()

    def restart(self) -> KubernetesSink:
        """Replace the sink by that of another run, which knows only what is on the node."""
        if self.sink is not None:
            self.sink.close()
        plain = sample_context()
        context: SinkContext = replace(
            plain,
            pending=lambda: list(self.pending.values()),
            now=lambda: self.now - self.set_back,
            time_of=lambda key: self.now if key in self.pending else None,
            has_polled=lambda: self.has_polled,
        )
        self.sink = KubernetesSink("k8s", self._settings, context)
        self.sink.open()
        return self.sink

    def commit(self, *records: Record, preparation: str | None = None) -> None:
        """Make the pending events those of these records, as a bridge does that commits them."""
        for each in records:
            event = read_object(Event, each.data["event"])
            self.pending.pop(event.key, None)
            if each.type != EVENT_ENDED and each.affects_this_vm:
                self.pending[event.key] = pending(event, preparation)

    def deliver(self, *records: Record) -> None:
        """Commit the records and deliver them to the sink."""
        self.commit(*records)
        self.sink.deliver(records)

    def announce(self, record: Record) -> None:
        """Commit the record without asking the sink, which prepares, to prepare for it."""
        self.commit(record, preparation="none")
        self.sink.announce(record)

    @property
    def node(self) -> dict[str, Any]:
        """Return the node as it is now."""
        return self.cluster.nodes[NODE]

    @property
    def condition(self) -> dict[str, Any] | None:
        """Return the sink's condition of the node."""
        found = self.node["status"]["conditions"]
        return next((each for each in found if each["type"] == CONDITION), None)

    def is_clean(self) -> bool:
        """Check whether nothing of the sink is left on the node."""
        annotations = self.node["metadata"].get("annotations") or {}
        taints = self.node["spec"].get("taints") or []
        return (
            ANNOTATION not in annotations
            and not self.node["spec"].get("unschedulable")
            and not [each for each in taints if each["key"] == TAINT]
            and self.condition is None
        )


def record(transition: str, event_type: str = "Reboot", event_id: str = "e-1") -> Record:
    """A record of an event that names this VM."""
    impacts = {"Reboot": "restart", "Freeze": "pause", "Redeploy": "redeploy", "Preempt": "delete"}
    impact = impacts[event_type]
    made = sample_record(1, record_type=f"seb.event.{transition}.v1", event_id=event_id)
    event = {**made.data["event"], "eventType": event_type}
    data = {**made.data, "event": event, "impact": impact, "affectsThisVm": True}
    return replace(made, id=f"{event_id}-{transition}", data=data)


def pending(event: Event, preparation: str | None = None) -> PendingEvent:
    """Return the event as the bridge shows it while it is pending."""
    return replace(sample_pending(event), affects_this_vm=True, preparation=preparation)


def test_an_event_is_shown_as_condition_and_event(cluster: FakeApi, make_bench: MakeBench) -> None:
    """Type and deadline are where `kubectl describe node` shows them; the sink changes nothing
    else.
    """
    bench = make_bench()
    bench.deliver(record("scheduled"))
    found = bench.condition
    assert found is not None
    assert (found["status"], found["reason"]) == ("True", "Reboot")
    assert "not before 2026-03-01T12:15:00Z" in found["message"]
    assert [each["reason"] for each in cluster.events] == ["EventScheduled"]
    assert cluster.events[0]["involvedObject"]["uid"] == bench.node["metadata"]["uid"]
    assert "unschedulable" not in bench.node["spec"]
    assert not bench.node["spec"].get("taints")


def test_taint_and_cordon_go_with_the_event(cluster: FakeApi, make_bench: MakeBench) -> None:
    """The end of the event removes taint and cordon, and keeps taints of others."""
    cluster.nodes[NODE]["spec"]["taints"] = [{"key": "gpu", "effect": "NoSchedule"}]
    bench = make_bench(taint=True, cordon=True)
    bench.deliver(record("scheduled"))
    assert bench.node["spec"]["unschedulable"] is True
    assert bench.node["spec"]["taints"][1] == {
        "key": TAINT,
        "value": "Reboot",
        "effect": "NoSchedule",
    }
    bench.deliver(record("started"), record("ended"))
    assert bench.is_clean()
    assert bench.node["spec"]["taints"] == [{"key": "gpu", "effect": "NoSchedule"}]


def test_a_pause_is_shown_only(cluster: FakeApi, make_bench: MakeBench) -> None:
    """The node is not drained for a pause of seconds, unless IMPACTS names it."""
    bench = make_bench(taint=True, cordon=True, drain=True)
    cluster.add_pod("web", NODE)
    bench.deliver(record("scheduled", "Freeze"))
    assert bench.condition is not None
    assert not bench.node["spec"].get("unschedulable")
    assert list(cluster.pods) == ["shop/web"]


def test_another_cordon_is_not_taken_back(cluster: FakeApi, make_bench: MakeBench) -> None:
    """A node that a person cordoned before the event stays cordoned after it."""
    cluster.nodes[NODE]["spec"]["unschedulable"] = True
    bench = make_bench(cordon=True)
    bench.deliver(record("scheduled"), record("ended"))
    assert bench.node["spec"]["unschedulable"] is True
    assert ANNOTATION not in (bench.node["metadata"].get("annotations") or {})


def test_a_node_that_a_person_uncordoned_stays_open(
    cluster: FakeApi, make_bench: MakeBench
) -> None:
    """A node that a person uncordoned during an event stays open until another event comes."""
    bench = make_bench(cordon=True)
    bench.deliver(record("scheduled"))
    del bench.node["spec"]["unschedulable"]
    bench.sink.maintain()
    assert "unschedulable" not in bench.node["spec"]
    bench.deliver(record("scheduled", "Redeploy", "e-2"))
    assert bench.node["spec"]["unschedulable"] is True


def test_a_node_that_a_person_cordoned_again_stays_cordoned(make_bench: MakeBench) -> None:
    """If a person uncordons the node and cordons it again, such as for a bad disk, it stays
    cordoned after the event.
    """
    bench = make_bench(cordon=True)
    bench.deliver(record("scheduled"))
    del bench.node["spec"]["unschedulable"]
    bench.sink.maintain()
    bench.restart()
    bench.node["spec"]["unschedulable"] = True
    bench.deliver(record("started"))
    bench.deliver(record("ended"))
    assert bench.node["spec"]["unschedulable"] is True
    assert ANNOTATION not in (bench.node["metadata"].get("annotations") or {})
    del bench.node["spec"]["unschedulable"]
    bench.deliver(record("scheduled", "Reboot", "e-2"), record("ended", "Reboot", "e-2"))
    assert bench.is_clean()


def test_two_events_end_one_after_the_other(cluster: FakeApi, make_bench: MakeBench) -> None:
    """The node is uncordoned when the last event is over; its condition shows the nearer event."""
    bench = make_bench(cordon=True, taint=True)
    bench.deliver(record("scheduled"), record("scheduled", "Redeploy", "e-2"))
    bench.deliver(record("ended"))
    assert bench.node["spec"]["unschedulable"] is True
    assert bench.condition is not None
    assert bench.condition["reason"] == "Redeploy"
    bench.deliver(record("ended", "Redeploy", "e-2"))
    assert bench.is_clean()


def test_mirror_and_daemon_pods_are_not_evicted(cluster: FakeApi, make_bench: MakeBench) -> None:
    """The delivery is acknowledged once all other pods have left."""
    cluster.add_pod("web", NODE)
    cluster.add_pod("other", "aks-2")
    cluster.add_pod("agent", NODE, daemon=True)
    cluster.add_pod("static", NODE, mirror=True)
    bench = make_bench(drain=True)
    bench.deliver(record("scheduled"))
    assert sorted(cluster.pods) == ["shop/agent", "shop/other", "shop/static"]
    assert bench.node["spec"]["unschedulable"] is True


def test_a_disruption_budget_is_honoured(
    cluster: FakeApi, make_bench: MakeBench, one_look: OneLook
) -> None:
    """A delivery that a disruption budget holds is tried again, and its error names the pods."""
    cluster.add_pod("web", NODE)
    cluster.protected.add("shop/web")
    bench = make_bench(drain=True)
    with (
        one_look(),
        pytest.raises(SinkError, match="1 pods are held by a disruption budget: shop/web"),
    ):
        bench.deliver(record("scheduled"))
    cluster.protected.clear()
    bench.deliver(record("scheduled"))
    assert not cluster.pods


@pytest.mark.parametrize(
    ("force", "set_back"),
    [(True, timedelta(0)), (False, timedelta(0)), (False, timedelta(hours=1))],
)
def test_lead_seconds_before_the_event_force_decides(
    cluster: FakeApi, make_bench: MakeBench, force: bool, set_back: timedelta
) -> None:
    """LEAD before the event, FORCE deletes the remaining pods; without FORCE the record is dead,
    with the reason, and a clock that was set back does not delay that.
    """
    cluster.add_pod("web", NODE)
    cluster.protected.add("shop/web")
    bench = make_bench(drain=True, lead=60, force=force)
    bench.now, bench.set_back = SAMPLE_TIME + timedelta(minutes=14), set_back
    if force:
        bench.deliver(record("scheduled"))
        assert not cluster.pods
    else:
        with pytest.raises(SinkRejected, match="1 pods are still on the node, and FORCE is not"):
            bench.deliver(record("scheduled"))
        assert list(cluster.pods) == ["shop/web"]


def test_a_deletion_needs_the_wall_clock_too(
    cluster: FakeApi, make_bench: MakeBench, one_look: OneLook
) -> None:
    """The clock was perhaps ahead when the event was first seen, and set right since: pods that a
    budget holds stay until it is late by this clock too.
    """
    cluster.add_pod("web", NODE)
    cluster.protected.add("shop/web")
    bench = make_bench(drain=True, lead=60, force=True)
    bench.now, bench.set_back = SAMPLE_TIME + timedelta(minutes=14), timedelta(seconds=200)
    with one_look(), pytest.raises(SinkError, match="held by a disruption budget"):
        bench.deliver(record("scheduled"))
    assert list(cluster.pods) == ["shop/web"]
    bench.set_back = timedelta()
    bench.deliver(record("scheduled"))
    assert not cluster.pods


@pytest.mark.parametrize("minutes", [14, 16])
def test_an_event_of_an_earlier_run_forces_nothing_before_a_document_confirms_it(
    cluster: FakeApi, make_bench: MakeBench, one_look: OneLook, minutes: int
) -> None:
    """It may be over: until the first document of this run pods are evicted before its time, and
    stay after it.
    """
    cluster.add_pod("free", NODE)
    cluster.add_pod("held", NODE)
    cluster.protected.add("shop/held")
    bench = make_bench(drain=True, lead=60, force=True)
    bench.now, bench.has_polled = SAMPLE_TIME + timedelta(minutes=minutes), False
    with one_look(), pytest.raises(SinkError):
        bench.deliver(record("scheduled"))
    left = ["shop/held"] if minutes < 15 else ["shop/free", "shop/held"]
    assert sorted(cluster.pods) == left
    bench.has_polled = True
    bench.deliver(record("scheduled"))
    assert not cluster.pods


@pytest.mark.parametrize("force", [False, True])
def test_an_event_whose_time_is_not_known_forces_nothing(
    cluster: FakeApi, make_bench: MakeBench, one_look: OneLook, *, force: bool
) -> None:
    """A NotBefore that cannot be read may be hours ahead: pods that a budget holds stay, and the
    drain goes on.
    """
    cluster.add_pod("free", NODE)
    cluster.add_pod("held", NODE)
    cluster.protected.add("shop/held")
    bench = make_bench(drain=True, lead=60, force=force)
    found = record("scheduled")
    event = {**found.data["event"], "notBefore": None}
    with one_look(), pytest.raises(SinkError, match="held by a disruption budget"):
        bench.deliver(replace(found, data={**found.data, "event": event}))
    assert sorted(cluster.pods) == ["shop/held"]


def test_an_event_that_is_over_drains_nothing(cluster: FakeApi, make_bench: MakeBench) -> None:
    """The record of an event does not drain the node if the backlog also holds the event's end."""
    cluster.add_pod("web", NODE)
    bench = make_bench(drain=True)
    bench.deliver(record("scheduled"), record("ended"))
    assert list(cluster.pods) == ["shop/web"]
    assert bench.is_clean()


def test_an_event_that_stops_to_name_this_vm_is_over_for_its_node(
    cluster: FakeApi, make_bench: MakeBench
) -> None:
    """An update after which the event no longer names this VM removes the event's marks from the
    node.
    """
    bench = make_bench(cordon=True)
    bench.deliver(record("scheduled"))
    left = record("updated")
    left = replace(left, data={**left.data, "affectsThisVm": False, "concernsThisVm": True})
    bench.deliver(left)
    assert bench.is_clean()


def test_a_run_whose_store_was_lost_leaves_nothing(cluster: FakeApi, make_bench: MakeBench) -> None:
    """The next run removes the marks of events that are not pending."""
    bench = make_bench(cordon=True, taint=True)
    bench.deliver(record("scheduled"))
    bench.pending.clear()
    bench.restart().maintain()
    assert bench.is_clean()


def test_a_run_that_was_killed_keeps_marks(cluster: FakeApi, make_bench: MakeBench) -> None:
    """The marks of a killed run stay until the event is over, and a later run removes them."""
    bench = make_bench(cordon=True)
    bench.deliver(record("scheduled"))
    bench.restart().maintain()
    assert bench.node["spec"]["unschedulable"] is True
    bench.deliver(record("ended"))
    assert bench.is_clean()


@pytest.mark.parametrize("is_done", [False, True], ids=["not done", "done"])
def test_a_run_that_is_killed_at_any_step_leaves_nothing(tmp_path: Path, is_done: bool) -> None:
    """If a run is killed before or after any request, the next run completes its work, and nothing
    is left at the end.
    """
    steps = 0
    while True:
        with FakeApi() as cluster:
            cluster.add_node(NODE)
            cluster.add_pod("a", NODE)
            cluster.add_pod("held", NODE)
            cluster.protected.add("shop/held")
            bench = KubernetesSinkBench(
                cluster, tmp_path, taint=True, drain=True, force=True, lead=3600
            )
            cluster.until_cut, cluster.cuts_done = steps, is_done
            for transition in ("scheduled", "updated", "started", "ended"):
                each = record(transition)
                try:
                    bench.deliver(each)
                    bench.sink.maintain()
                except SinkError:
                    bench.restart()
                    bench.deliver(each)
                    bench.sink.maintain()
                is_over = transition == "ended"
                assert bench.is_clean() == is_over, (steps, transition)
            bench.sink.close()
            assert not cluster.pods
            assert len(cluster.events) == 4
            if cluster.until_cut is not None:
                break
        steps += 1
    assert steps > 15


def test_marks_of_another_vm_under_the_same_name_are_taken_back(
    cluster: FakeApi, make_bench: MakeBench
) -> None:
    """The sink removes the marks of a VM that was deleted while its node was cordoned."""
    bench = make_bench(cordon=True)
    bench.deliver(record("scheduled"))
    annotations = bench.node["metadata"]["annotations"]
    annotations[ANNOTATION] = annotations[ANNOTATION].replace(SAMPLE_VM.vm_id, "another")
    bench.pending.clear()
    bench.restart().maintain()
    assert bench.is_clean()


def test_a_new_node_object_gets_the_marks_of_a_pending_event(
    cluster: FakeApi, make_bench: MakeBench
) -> None:
    """A Node object that was deleted and created again gets the marks of a pending event."""
    bench = make_bench(cordon=True)
    bench.deliver(record("scheduled"))
    cluster.add_node(NODE)
    bench.sink.maintain()
    assert bench.node["spec"]["unschedulable"] is True
    assert bench.condition is not None


def test_a_concurrent_change_is_not_overwritten(cluster: FakeApi, make_bench: MakeBench) -> None:
    """If another client changes the node in between, the sink reads it again, and both changes
    stay.
    """
    bench = make_bench(taint=True)

    def add_taint() -> None:
        cluster.before_patch = lambda: None
        bench.node["spec"]["taints"] = [{"key": "gpu", "effect": "NoSchedule"}]
        bench.node["metadata"]["resourceVersion"] = "999"

    cluster.before_patch = add_taint
    bench.deliver(record("scheduled"))
    assert [each["key"] for each in bench.node["spec"]["taints"]] == ["gpu", TAINT]


@pytest.mark.parametrize("code", [401, 403, 404, 429, 500, 503])
def test_a_refusal_is_tried_again_and_names_a_remedy(
    cluster: FakeApi, make_bench: MakeBench, code: int
) -> None:
    """If the API server is unreachable, busy or refuses, the delivery is tried again, and its error
    has a remedy.
    """
    bench = make_bench(cordon=True)
    cluster.refusals = [code]
    with pytest.raises(SinkError, match=f"the API server answered {code}"):
        bench.deliver(record("scheduled"))
    bench.deliver(record("scheduled"))
    assert bench.node["spec"]["unschedulable"] is True


def test_a_record_is_one_event_however_often_it_is_delivered(
    cluster: FakeApi, make_bench: MakeBench
) -> None:
    """A record that is delivered twice becomes one Kubernetes Event, named by the record's id."""
    bench = make_bench()
    bench.deliver(record("scheduled"))
    bench.deliver(record("scheduled"))
    assert len(cluster.events) == 1


def test_a_quiet_node_is_left_alone(cluster: FakeApi, make_bench: MakeBench) -> None:
    """`maintain` of a node without events sends the API server few requests."""
    bench = make_bench()
    bench.sink.maintain()
    before = len(cluster.requests)
    for _ in range(10):
        bench.sink.maintain()
    assert len(cluster.requests) == before


def test_check_names_the_right_that_is_missing(cluster: FakeApi, make_bench: MakeBench) -> None:
    """`check` examines each permission that the settings need, and names a missing one."""
    bench = make_bench(drain=True)
    cluster.forbidden.add(("create", "pods/eviction"))
    lines = [line for line in bench.sink.check() if line.level == "fail"]
    assert [line.text for line in lines] == ["the service account may not create pods/eviction"]


def test_check_tries_what_a_policy_says(cluster: FakeApi, make_bench: MakeBench) -> None:
    """`check` finds that an admission policy refuses the token although the role allows the
    request, and changes nothing.
    """
    bench = make_bench()
    version = bench.node["metadata"]["resourceVersion"]
    assert not [line for line in bench.sink.check() if line.level == "fail"]
    assert bench.node["metadata"]["resourceVersion"] == version
    cluster.refuses_patches = 403
    failed = [line for line in bench.sink.check() if line.level == "fail"]
    assert [line.text for line in failed] == ["the API server answered 403: as the test wants it"]
    assert "its policy" in str(failed[0].remedy)


def test_check_finds_a_node_that_is_another_vm(cluster: FakeApi, make_bench: MakeBench) -> None:
    """`check` fails if NODE names the node of another VM."""
    bench = make_bench()
    cluster.nodes[NODE]["spec"]["providerID"] = "azure:///subscriptions/other"
    failed = [line for line in bench.sink.check() if line.level == "fail"]
    assert failed
    assert failed[0].remedy == "set NODE to the name of this VM's own node"


def test_settings_refuse_an_unknown_impact(cluster: FakeApi, make_bench: MakeBench) -> None:
    """A misspelt impact is refused, because the sink would drain for no event."""
    with pytest.raises(ValueError, match="there is no impact 'reboot'"):
        make_bench(impacts=["reboot"])


def test_the_annotation_names_the_events_of_the_marks(
    cluster: FakeApi, make_bench: MakeBench
) -> None:
    """The annotation says which events marked the node, for people and for the next run."""
    bench = make_bench(cordon=True)
    bench.deliver(record("scheduled"))
    found = json.loads(bench.node["metadata"]["annotations"][ANNOTATION])
    assert found["cordoned"] is True
    assert list(found["events"]) == ["e-1"]


def test_a_new_node_that_a_person_closed_stays_closed(
    cluster: FakeApi, make_bench: MakeBench
) -> None:
    """A new Node object that a person cordoned stays cordoned, although the sink had cordoned the
    deleted one.
    """
    bench = make_bench(cordon=True)
    bench.deliver(record("scheduled"))
    cluster.add_node(NODE, unschedulable=True)
    bench.deliver(record("ended"))
    assert bench.node["spec"]["unschedulable"] is True


def test_a_second_event_is_shown_while_the_first_is_drained_for(
    cluster: FakeApi, make_bench: MakeBench, one_look: OneLook
) -> None:
    """A second event is shown on the node while a disruption budget holds the drain for the first
    one.
    """
    cluster.add_pod("web", NODE)
    cluster.protected.add("shop/web")
    bench = make_bench(drain=True)
    with one_look(), pytest.raises(SinkError, match="held by a disruption budget") as raised:
        bench.deliver(record("scheduled"), record("scheduled", "Redeploy", "e-2"))
    assert raised.value.delivered == 0
    assert bench.condition is not None
    assert "Redeploy e-2" in bench.condition["message"]


def test_a_drain_that_is_tried_again_does_not_close_an_opened_node(
    cluster: FakeApi, make_bench: MakeBench, one_look: OneLook
) -> None:
    """A drain that is tried again does not cordon a node that a person uncordoned meanwhile."""
    cluster.add_pod("web", NODE)
    cluster.protected.add("shop/web")
    bench = make_bench(drain=True)
    for _ in range(2):
        with one_look(), pytest.raises(SinkError, match="held by a disruption budget"):
            bench.deliver(record("scheduled"))
        bench.node["spec"].pop("unschedulable", None)
    assert "unschedulable" not in bench.node["spec"]


def test_a_preparing_sink_shows_and_waits_to_be_asked(
    cluster: FakeApi, make_bench: MakeBench
) -> None:
    """A sink that prepares shows an event from its announcement on, and evicts no pod before it is
    asked to prepare.
    """
    cluster.add_pod("web", NODE)
    bench = make_bench(prepares=True, drain=True, taint=True)
    bench.announce(record("scheduled"))
    assert bench.condition is not None
    assert not bench.node["spec"].get("unschedulable")
    assert list(cluster.pods) == ["shop/web"]
    bench.deliver(record("scheduled"))
    assert bench.node["spec"]["unschedulable"] is True
    assert not cluster.pods
    bench.announce(record("updated"))
    assert bench.node["spec"]["unschedulable"] is True
    bench.deliver(record("ended"))
    assert bench.is_clean()


def test_no_preparation_waits_for_a_kubernetes_event(
    cluster: FakeApi, make_bench: MakeBench
) -> None:
    """If Kubernetes Events are refused, the sink drains the node nevertheless, reports the error,
    and writes the Events later.
    """
    cluster.add_pod("web", NODE)
    cluster.refuses_events = 403
    bench = make_bench(prepares=True, drain=True)
    bench.announce(record("scheduled"))
    bench.deliver(record("scheduled"))
    assert not cluster.pods
    for _ in range(2):
        with pytest.raises(SinkError, match="answered 403"):
            bench.sink.maintain()
    bench.deliver(record("ended"))
    assert bench.is_clean()
    cluster.refuses_events = 0
    bench.sink.maintain()
    assert sorted(each["reason"] for each in cluster.events) == ["EventEnded", "EventScheduled"]


@pytest.mark.parametrize("expected", [False, True])
def test_an_event_that_returns_before_its_end_was_delivered_opens_the_node(
    make_bench: MakeBench, *, expected: bool
) -> None:
    """If an event returns before its end was delivered, the node is uncordoned, and cordoned again
    only once the sink is asked to prepare for the return.
    """
    bench = make_bench(prepares=True, drain=True, taint=True)
    bench.deliver(record("scheduled"))
    assert bench.node["spec"]["unschedulable"] is True
    bench.commit(record("ended"))
    bench.commit(record("scheduled"), preparation="preparing" if expected else "none")
    bench.sink.maintain()
    bench.sink.deliver([record("ended")])
    assert bool(bench.node["spec"].get("unschedulable")) is expected
    bench.sink.announce(record("scheduled"))
    assert bench.condition is not None
    bench.sink.deliver([record("scheduled")])
    assert bench.node["spec"]["unschedulable"] is True


def test_a_node_that_is_prepared_stays_cordoned_until_the_event_ends(make_bench: MakeBench) -> None:
    """A sink that has prepared the node keeps it cordoned if the event changes to one on which it
    would not act, since the bridge counts the state that comes back as prepared.
    """
    bench = make_bench(prepares=True, drain=True)
    bench.deliver(record("scheduled", "Redeploy"))
    for event_type in ("Freeze", "Redeploy"):
        bench.announce(record("updated", event_type))
        assert bench.node["spec"]["unschedulable"] is True
    bench.deliver(record("ended", "Redeploy"))
    assert bench.is_clean()


def test_an_event_that_only_keeps_the_node_cordoned_forces_no_pod_off(
    cluster: FakeApi, make_bench: MakeBench, one_look: OneLook
) -> None:
    """The node was prepared for an event that is a pause by now, and its time is near: pods that a
    budget holds stay while the node is drained for another event, which is hours ahead.
    """
    bench = make_bench(prepares=True, drain=True, lead=60, force=True)
    bench.deliver(record("scheduled", "Redeploy"))
    bench.announce(record("updated", "Freeze"))
    bench.now = SAMPLE_TIME + timedelta(minutes=14, seconds=55)
    cluster.add_pod("web", NODE)
    cluster.protected.add("shop/web")
    found = record("scheduled", event_id="e-2")
    event = {**found.data["event"], "notBefore": "2026-03-01T15:00:00.000Z"}
    with one_look(), pytest.raises(SinkError, match="held by a disruption budget"):
        bench.deliver(replace(found, data={**found.data, "event": event}))
    assert list(cluster.pods) == ["shop/web"]


def test_an_event_that_ends_unasked_leaves_nothing(make_bench: MakeBench) -> None:
    """An event that was only shown leaves nothing on the node after its end."""
    bench = make_bench(prepares=True, drain=True)
    bench.announce(record("scheduled"))
    bench.announce(record("ended"))
    assert bench.is_clean()


@pytest.mark.parametrize(
    ("settings", "until"),
    [
        ({"lead": 100}, 100),
        ({"lead": 100, "force_lead": 20}, 20),
        ({"lead": 100, "prepares": True}, 25),
        ({"lead": 100, "prepares": True, "force_lead": 20}, 20),
    ],
)
def test_budgets_are_honoured_until(settings: dict[str, Any], until: float) -> None:
    """Disruption budgets are honoured until a time between LEAD and the event, so that a
    preparation has time before it forces.
    """
    found = KubernetesSettings(kind="kubernetes", **settings)
    assert found.budgets_until == until


def test_check_names_a_preparation_that_does_nothing(make_bench: MakeBench) -> None:
    """`check` warns of a sink that prepares and does not drain: the VM would report that it is
    prepared with all its pods running.
    """
    lines = make_bench(prepares=True).sink.check()
    assert [line.remedy for line in lines if line.level == "warn"] == ["set DRAIN, CORDON or TAINT"]


def test_the_newest_record_says_until_when(
    cluster: FakeApi, make_bench: MakeBench, one_look: OneLook
) -> None:
    """If Azure brings an event forward while a disruption budget holds the drain, the newest
    notBefore counts.
    """
    cluster.add_pod("web", NODE)
    cluster.protected.add("shop/web")
    bench = make_bench(drain=True, force=True, lead=120)
    first, moved = record("scheduled"), record("updated")
    event = {**moved.data["event"], "notBefore": rfc3339(SAMPLE_TIME + timedelta(seconds=60))}
    nearer = replace(moved, data={**moved.data, "event": event})
    with one_look(), pytest.raises(SinkError, match="held by a disruption budget"):
        bench.deliver(first)
    bench.deliver(first, nearer)
    assert not cluster.pods


def test_a_record_too_large_for_an_annotation_is_an_event(
    cluster: FakeApi, make_bench: MakeBench
) -> None:
    """A record that is too large for an annotation becomes an Event without it, and does not block
    later records.
    """
    bench = make_bench()
    large = record("scheduled")
    event = {**large.data["event"], "resources": [f"vmss_{n}" * 20 for n in range(3000)]}
    data = {**large.data, "event": event}
    bench.deliver(replace(large, data=data, body=json.dumps(data).encode()))
    assert [each["reason"] for each in cluster.events] == ["EventScheduled"]


def near(found: Record, seconds: float) -> Record:
    """Return the record with a notBefore so many seconds after the time of the samples."""
    event = {**found.data["event"], "notBefore": rfc3339(SAMPLE_TIME + timedelta(seconds=seconds))}
    return replace(found, data={**found.data, "event": event})


def test_a_run_after_the_node_was_made_again_marks_it(
    cluster: FakeApi, make_bench: MakeBench
) -> None:
    """A new run marks a Node object that was created again, because the bridge's pod was deleted
    with the old one.
    """
    bench = make_bench(cordon=True, taint=True)
    bench.deliver(record("scheduled"))
    cluster.add_node(NODE)
    bench.restart().maintain()
    assert bench.condition is not None
    assert bench.node["spec"]["unschedulable"] is True
    bench.deliver(record("ended"))
    assert bench.is_clean()


def test_a_run_after_a_preparation_acts_on_a_node_that_was_made_again(
    cluster: FakeApi, make_bench: MakeBench
) -> None:
    """A new run taints and cordons the new Node object for an event that this VM has prepared
    for.
    """
    bench = make_bench(cordon=True, prepares=True)
    bench.deliver(record("scheduled"))
    bench.commit(record("scheduled"), preparation="prepared")
    cluster.add_node(NODE)
    bench.restart().maintain()
    assert bench.node["spec"]["unschedulable"] is True


def test_a_new_store_takes_nothing_back_before_imds_has_answered(make_bench: MakeBench) -> None:
    """A run with a new store keeps the marks until IMDS has answered: the event may still be
    pending.
    """
    bench = make_bench(cordon=True)
    bench.deliver(record("scheduled"))
    bench.pending.clear()
    bench.has_polled = False
    sink = bench.restart()
    sink.maintain()
    assert bench.node["spec"]["unschedulable"] is True
    bench.has_polled = True
    sink.maintain()
    assert bench.is_clean()


def test_an_event_that_was_seen_to_end_is_taken_back_although_imds_is_away(
    make_bench: MakeBench,
) -> None:
    """A restarted bridge removes the marks of an event whose end it has recorded, although IMDS
    does not answer.
    """
    bench = make_bench(cordon=True)
    bench.deliver(record("scheduled"))
    bench.has_polled = False
    bench.deliver(record("ended"))
    assert bench.is_clean()


@pytest.mark.parametrize("code", [403, 429, 500])
def test_an_event_that_cannot_be_written_holds_up_no_mark(
    cluster: FakeApi, make_bench: MakeBench, code: int
) -> None:
    """If a quota leaves no room for a Kubernetes Event, the node is drained, and uncordoned
    afterwards, nevertheless.
    """
    cluster.add_pod("web", NODE)
    bench = make_bench(drain=True)
    cluster.refuses_events = code
    with pytest.raises(SinkError, match=f"answered {code}"):
        bench.deliver(record("scheduled"))
    assert bench.node["spec"]["unschedulable"] is True
    assert not cluster.pods
    with pytest.raises(SinkError, match=f"answered {code}"):
        bench.deliver(record("scheduled"), record("ended"))
    assert bench.is_clean()
    cluster.refuses_events = 0
    bench.deliver(record("scheduled"), record("ended"))
    assert len(cluster.events) == 2


def test_a_node_that_a_person_uncordoned_stays_open_for_the_same_event(
    make_bench: MakeBench,
) -> None:
    """A node that a person uncordoned stays open when the event changes or starts, when an event
    comes that only is shown, and after a restart.
    """
    bench = make_bench(cordon=True)
    bench.deliver(record("scheduled"))
    del bench.node["spec"]["unschedulable"]
    bench.deliver(near(record("updated"), 600))
    bench.deliver(record("scheduled", "Freeze", "e-2"))
    bench.restart()
    bench.deliver(record("started"))
    assert "unschedulable" not in bench.node["spec"]


def test_a_dead_record_that_is_tried_again_after_the_event_empties_no_node(
    cluster: FakeApi, make_bench: MakeBench
) -> None:
    """A dead record that is tried again does not drain the node if its event is over."""
    cluster.add_pod("web", NODE)
    bench = make_bench(drain=True, force=True, taint=True)
    bench.sink.deliver([record("scheduled")])
    assert list(cluster.pods) == ["shop/web"]
    assert bench.is_clean()


def test_an_event_that_ends_during_the_drain_stops_it(
    cluster: FakeApi, make_bench: MakeBench
) -> None:
    """A drain stops if Azure cancels the event while a disruption budget holds it."""
    cluster.add_pod("web", NODE)
    cluster.protected.add("shop/web")
    bench = make_bench(drain=True)
    bench.commit(record("scheduled"))
    bench.sink.context = replace(
        bench.sink.context,
        pending=iter([[*bench.pending.values()], [*bench.pending.values()]] + [[]] * 9).__next__,
    )
    bench.sink.deliver([record("scheduled")])
    assert list(cluster.pods) == ["shop/web"]


def test_a_near_event_forces_while_a_far_one_is_held(
    cluster: FakeApi, make_bench: MakeBench, one_look: OneLook
) -> None:
    """A Preempt deletes the pods at once, although a disruption budget holds the drain for an event
    in some days.
    """
    cluster.add_pod("web", NODE)
    cluster.protected.add("shop/web")
    bench = make_bench(drain=True, force=True, lead=60)
    far = near(record("scheduled"), 86_400)
    with one_look(), pytest.raises(SinkError, match="held by a disruption budget"):
        bench.deliver(far)
    bench.deliver(far, near(record("scheduled", "Preempt", "e-2"), 30))
    assert not cluster.pods


def test_a_pod_that_cannot_be_evicted_keeps_no_other(
    cluster: FakeApi, make_bench: MakeBench, one_look: OneLook
) -> None:
    """A pod whose eviction fails (500 with two budgets, 403 by a webhook) does not prevent the
    eviction of the others.
    """
    for name in ("a", "b", "c", "d"):
        cluster.add_pod(name, NODE)
    cluster.unevictable = {"shop/a": 500, "shop/b": 403}
    cluster.protected.add("shop/c")
    bench = make_bench(drain=True)
    with one_look(), pytest.raises(SinkError, match="2 pods cannot leave: shop/a, shop/b: the API"):
        bench.deliver(record("scheduled"))
    assert sorted(cluster.pods) == ["shop/a", "shop/b", "shop/c"]


def test_an_api_server_that_is_busy_is_not_a_disruption_budget(
    cluster: FakeApi, make_bench: MakeBench
) -> None:
    """A 429 of a busy API server is not taken for a disruption budget: the eviction is tried again
    after the given time.
    """
    cluster.add_pod("a", NODE)
    cluster.unevictable = {"shop/a": 429}
    bench = make_bench(drain=True)
    with pytest.raises(SinkError, match="the API server answered 429"):
        bench.deliver(record("scheduled"))


@pytest.mark.parametrize(("header", "seconds"), [("0", None), ("7", 7.0)])
def test_an_api_server_that_asks_for_no_wait_is_waited_for(
    cluster: FakeApi, make_bench: MakeBench, header: str, seconds: float | None
) -> None:
    """`Retry-After: 0` leaves the back-off as it is: every node of the cluster asks."""
    cluster.refuses_patches, cluster.retry_after = 503, header
    with pytest.raises(SinkError, match="503") as caught:
        make_bench(taint=True).deliver(record("scheduled"))
    assert caught.value.retry_after == seconds


def test_a_short_notice_evicts_what_may_leave(cluster: FakeApi, make_bench: MakeBench) -> None:
    """With a notice shorter than LEAD and without FORCE, all pods are evicted but those that a
    budget holds.
    """
    cluster.add_pod("free", NODE)
    cluster.add_pod("held", NODE)
    cluster.protected.add("shop/held")
    bench = make_bench(drain=True, lead=120)
    with pytest.raises(SinkRejected, match="1 pods are still on the node, and FORCE is not set"):
        bench.deliver(near(record("scheduled", "Preempt"), 30))
    assert list(cluster.pods) == ["shop/held"]


def test_a_pod_that_came_back_under_its_name_is_not_deleted(
    cluster: FakeApi, make_bench: MakeBench
) -> None:
    """A pod of a StatefulSet that moved to another node before its deletion is not deleted
    there.
    """
    cluster.add_pod("db-0", NODE)
    api = make_bench().sink._connect()
    (seen,) = api.pods()
    cluster.add_pod("db-0", "aks-2")
    cluster.pods["shop/db-0"]["metadata"]["uid"] = "another"
    assert api.delete(seen) is None
    assert api.evict(seen) is None
    assert list(cluster.pods) == ["shop/db-0"]


def test_a_slow_api_server_is_not_waited_for_beyond_the_deadline(
    cluster: FakeApi, make_bench: MakeBench, one_look: OneLook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a hundred pods and a second for each request, a delivery returns before its deadline,
    and the next one continues.
    """
    for number in range(3):
        cluster.add_pod(f"pod-{number}", NODE)
    bench = make_bench(drain=True)
    monkeypatch.setattr("sinks.kinds.kubernetes.sink.ROUND_SECONDS", 0.0)
    for left in (2, 1, 0):
        with one_look(), pytest.raises(SinkError):
            bench.deliver(record("scheduled"))
        assert len(cluster.pods) == left


def test_a_node_that_is_another_vm_is_not_touched(cluster: FakeApi, make_bench: MakeBench) -> None:
    """The sink does not touch the node in NODE if that is another VM, such as on a VM that was made
    from the other one's image.
    """
    bench = make_bench(cordon=True)
    cluster.nodes[NODE]["spec"]["providerID"] = "azure:///subscriptions/other"
    with pytest.raises(SinkError, match="set NODE to the name of this VM's own node"):
        bench.restart()


NO_USER = """
current-context: x
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
contexts: [{name: x, context: {cluster: c}}]
"""


@pytest.mark.parametrize(
    "text",
    [
        "users: [{name: u, user: {token: a-secret-token: x}}]",
        'users: [{name: u, user: {token: "a-secret-token}}]',
        "",
        "[]",
        "apiVersion: v1",
        "\0",
        NO_USER,
    ],
)
def test_the_error_about_a_broken_kubeconfig_shows_no_token(
    make_bench: MakeBench, tmp_path: Path, text: str
) -> None:
    """The error about a kubeconfig that cannot be parsed shows no token; the file may just be being
    written.
    """
    bench = make_bench()
    (tmp_path / "c").write_text(text)
    with pytest.raises(SinkError, match="gives no way to the API server") as raised:
        bench.restart()
    assert "secret" not in str(raised.value)


def test_a_token_that_is_no_header_is_not_shown(
    cluster: FakeApi, make_bench: MakeBench, tmp_path: Path
) -> None:
    """The error about a token that no header can hold, such as one with a line break, does not show
    it.
    """
    bench = make_bench()
    config = (tmp_path / "c").read_text()
    (tmp_path / "c").write_text(config.replace("a-secret-token", "a-secret-token\\nx"))
    with pytest.raises(SinkError) as raised:
        bench.restart()
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(("status", "is_shown"), [("scheduled", False), ("started", True)])
def test_types_say_from_when_an_event_is_shown(
    make_bench: MakeBench, status: str, is_shown: bool
) -> None:
    """With `TYPES` that name only started events, an announced event is not shown on the node."""
    bench = make_bench(types=["seb.event.started.v1", "seb.event.ended.v1"])
    bench.commit(record(status))
    bench.sink.maintain()
    assert (bench.condition is not None) == is_shown
