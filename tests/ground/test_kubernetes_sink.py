"""The kubernetes sink at a real API server, with controllers, scheduler and kwok's kubelets.

The chart makes role, policy and DaemonSet; each bridge runs with the token that its pod would have,
so every test passes the policy. In each, the bridge is killed (-9) in the middle, and afterwards
nothing of ours is left on the node.
"""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from lightkube import Client, KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import Node, NodeStatus
from lightkube.types import PatchType
from support.faults.proxy import FaultProxy, Spoil
from support.ground.cache import ROOT
from support.ground.kube import KubernetesCluster, missing
from support.kubernetes.node_bench import PATIENCE, NodeBench, node_bench, soon

from bridge.simulator.faults import StatusFault
from bridge.simulator.simulator import Simulator
from bridge.simulator.vm import SimulatedVm
from sinks.kinds.kubernetes.api import Api
from sinks.kinds.kubernetes.marks import ANNOTATION, CONDITION, TAINT

NAMESPACE = "seb"
ROLE = f"{NAMESPACE}-scheduled-events-bridge"
VALUES = ROOT / "tests" / "helm" / "values"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

MakeBench = Callable[..., AbstractContextManager[NodeBench]]


def install(cluster: KubernetesCluster, release: str, namespace: str, values: str) -> None:
    """Install the chart, with one of its values files."""
    cluster.namespace(namespace)
    image = ("--set", "image.repository=registry.example/seb", "-f", f"{VALUES}/{values}.yaml")
    done = cluster.helm("install", release, str(ROOT / "helm"), "-n", namespace, *image)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    """A cluster with the chart and all that the sink can do."""
    if why := missing():
        pytest.skip(why)
    with KubernetesCluster(tmp_path_factory.mktemp("kube"), runs_pods=True) as made:
        install(made, "scheduled-events-bridge", NAMESPACE, "kubernetes-drain")
        yield made


@pytest.fixture
def make(cluster: KubernetesCluster, tmp_path: Path) -> MakeBench:
    """Makes nodes, each with its VM."""

    @contextmanager
    def made(namespace: str = NAMESPACE, **settings: str) -> Iterator[NodeBench]:
        home = tmp_path / f"node-{len(list(tmp_path.iterdir()))}"
        home.mkdir()
        with node_bench(cluster, home, namespace, **settings) as bench:
            yield bench

    return made


def test_an_event_is_shown_and_taken_back(make: MakeBench) -> None:
    """Type and deadline are the condition of the node, each transition is a Kubernetes Event, once,
    and the node is left as it was.
    """
    with make() as bench:
        with bench.bridge() as bridge:
            event = bench.announce("Redeploy")
            bench.await_marked()
            bridge.kill()
        found = bench.condition()
        assert found is not None
        assert (found["status"], found["reason"]) == ("True", "Redeploy")
        assert "not before 20" in found["message"]
        assert not bench.is_closed()
        assert not bench.taints()
        with bench.bridge():
            bench.simulator.start_event(event.event_id)
            bench.end(event)
            bench.await_clean()
            wanted = ["EventEnded", "EventScheduled"]
            soon(
                lambda: sorted({*bench.events()} - {"EventStarted"}) == wanted,
                what="the events of the node",
            )
            assert len(bench.events()) == len(set(bench.events()))


def test_taint_and_cordon_go_with_the_event(make: MakeBench) -> None:
    """Another's taint and Kubernetes' own stay as they are."""
    with make(TAINT="true", CORDON="true") as bench:
        bench.cluster.kubectl("taint", "node", bench.name, "gpu=x:NoSchedule")
        with bench.bridge() as bridge:
            event = bench.announce()
            bench.await_marked()
            bridge.kill()
        assert bench.is_closed()
        assert sorted(bench.taints()) == [("gpu", "NoSchedule"), (TAINT, "NoSchedule")]
        with bench.bridge():
            bench.end(event)
            bench.await_clean()
            assert bench.taints() == [("gpu", "NoSchedule")]


def test_another_cordon_stays(make: MakeBench) -> None:
    """A person cordoned the node before the event, and it stays cordoned after it."""
    with make(CORDON="true") as bench:
        bench.cluster.kubectl("cordon", bench.name)
        with bench.bridge() as bridge:
            event = bench.announce()
            bench.await_marked()
            bridge.kill()
        with bench.bridge():
            bench.end(event)
            soon(lambda: bench.left() == ["cordon"], what="our marks gone")


def test_a_drain_waits_for_the_budget(make: MakeBench) -> None:
    """Pods leave, a pod that its disruption budget holds stays until the budget lets it go, and
    daemon and mirror pods stay.
    """
    with make(DRAIN="true", FORCE="true") as bench:
        bench.run("free")
        bench.run("held", budget=1)
        bench.run_mirror(f"static-{bench.name}")
        with bench.bridge() as bridge:
            event = bench.announce()
            bridge.wait_for_log("sink_down", timeout=PATIENCE)
            reason = str(bridge.logs("sink_down")[0])
            assert "held by a disruption budget: default/held-" in reason
            bridge.kill()
        names = bench.pods()
        assert [each.split("-")[0] for each in names] == ["held", "static"]
        with bench.bridge():
            done = bench.cluster.kubectl("delete", "poddisruptionbudget", "held", "-n", "default")
            assert done.returncode == 0, done.stderr
            static = [f"static-{bench.name}"]
            soon(lambda: bench.pods() == static, what="an empty node")
            assert bench.is_closed()
            bench.end(event)
            bench.await_clean()
            soon(lambda: bench.backlog() == 0, what="a delivered record")
        soon(lambda: len(bench.pods()) == 3, what="pods that come back")


@pytest.mark.parametrize("force", [True, False], ids=["force", "no force"])
def test_the_deadline(make: MakeBench, force: bool) -> None:
    """LEAD seconds before notBefore, what a budget holds is deleted if FORCE says so; otherwise it
    stays, and the record is dead with the reason. The deadline is that of the newest record: Azure
    brings the event forward while the drain waits.
    """
    with make(DRAIN="true", FORCE=str(force).lower(), LEAD="3600") as bench:
        bench.run("held", budget=1)
        held = bench.pods()
        with bench.bridge() as bridge:
            event = bench.announce(minutes=120)
            bridge.wait_for_log("sink_down", timeout=PATIENCE)
            bridge.kill()
        assert bench.pods() == held
        with bench.bridge() as bridge:
            bench.bring_forward(event, minutes=30)
            if force:
                soon(lambda: bench.pods() == [], what="a deleted pod")
            else:
                dead = bridge.wait_for_log("record_dead", timeout=PATIENCE)
                assert "FORCE is not set" in str(dead)
                assert bench.pods() == held
            assert bench.is_closed()
            bench.end(event)
            bench.await_clean()


def test_the_sink_prepares_the_vm(make: MakeBench) -> None:
    """An event is shown from its announcement on; pods leave once an approval waits for that, and
    Azure hears of the approval when they have left.
    """
    rules = {"SEB_APPROVAL__RULES": json.dumps([{"name": "reboots", "event_type": ["Reboot"]}])}
    with make(PREPARES="true", DRAIN="true", FORCE="true") as bench:
        bench.run("held", budget=1)
        held = bench.pods()
        with bench.bridge() as bridge:
            event = bench.announce()
            bench.await_marked()
            assert not bench.is_closed()
            bridge.kill()
        with bench.bridge(**rules) as bridge:
            bridge.wait_for_log("sink_down", timeout=PATIENCE)
            assert bench.is_closed()
            assert bench.pods() == held
            bridge.kill()
        assert bench.simulator.approvals == []
        with bench.bridge(**rules):
            bench.cluster.kubectl("delete", "poddisruptionbudget", "held", "-n", "default")
            soon(
                lambda: len(bench.simulator.approvals) > 0,
                what="an approval",
            )
            assert bench.pods() == []
            bench.end(event)
            bench.await_clean()


def test_an_event_that_never_starts(make: MakeBench) -> None:
    """Azure takes it back while the bridge is dead; the next one takes all back."""
    with make(TAINT="true", DRAIN="true") as bench:
        with bench.bridge() as bridge:
            event = bench.announce("Preempt")
            bench.await_marked()
            bridge.kill()
        bench.end(event)
        with bench.bridge():
            bench.await_clean()


def test_two_events_one_after_the_other(make: MakeBench) -> None:
    """The node stays closed until the last one is over."""
    with make(TAINT="true", CORDON="true") as bench:
        with bench.bridge() as bridge:
            first, second = bench.announce("Reboot"), bench.announce("Redeploy", minutes=30)
            message = "both events in the condition"
            soon(
                lambda: "; " in (bench.condition() or {}).get("message", ""),
                what=message,
            )
            bridge.kill()
        with bench.bridge():
            bench.end(first)
            soon(
                lambda: (bench.condition() or {}).get("reason") == "Redeploy",
                what="the second event alone",
            )
            assert bench.is_closed()
            bench.end(second)
            bench.await_clean()


def test_a_node_that_is_made_again(make: MakeBench) -> None:
    """The Node object is deleted, and the bridge's pod with it; both come back: the new run gives
    the node the marks of the pending event again, and takes them back at its end.
    """
    with make(TAINT="true", CORDON="true") as bench:
        with bench.bridge() as bridge:
            event = bench.announce()
            bench.await_marked()
            soon(lambda: bench.backlog() == 0, what="a delivered record")
            bridge.kill()
        before = bench.node()["metadata"]["uid"]
        bench.cluster.kubectl("delete", "node", bench.name)
        bench.cluster.add_node(bench.name, f"azure://{bench.simulator.vm.resource_id}")
        bench.take_token()
        assert bench.left() == []
        with bench.bridge():
            bench.await_marked("the event on the new node")
            assert bench.node()["metadata"]["uid"] != before
            assert bench.is_closed()
            bench.end(event)
            bench.await_clean()


def test_a_new_store(make: MakeBench) -> None:
    """The state went with the pod (emptyDir), and IMDS gives no document for a while: the node
    stays closed, because the event may be pending; it is opened when IMDS knows no event.
    """
    with make(TAINT="true", CORDON="true") as bench:
        with bench.bridge() as bridge:
            event = bench.announce()
            bench.await_marked()
            bridge.kill()
        shutil.rmtree(bench.home / "state")
        bench.simulator.fault(StatusFault(503), times=None)
        with bench.bridge() as bridge:
            bridge.wait_for_log("started", timeout=PATIENCE)
            # Longer than a sink that is idle takes to look after its node.
            threading.Event().wait(10)
            assert bench.is_closed()
            bench.end(event)
            bench.simulator.heal()
            bench.await_clean()


def test_a_nearer_event_decides(make: MakeBench) -> None:
    """A disruption budget holds the drain for an event in five days, and the VM is preempted."""
    with make(DRAIN="true", FORCE="true", LEAD="3600") as bench:
        bench.run("held", budget=1)
        with bench.bridge() as bridge:
            far = bench.announce(minutes=5 * 1440)
            bridge.wait_for_log("sink_down", timeout=PATIENCE)
            bridge.kill()
        with bench.bridge():
            near = bench.announce("Preempt", minutes=30)
            soon(lambda: bench.pods() == [], what="a deleted pod")
            bench.end(near)
            bench.end(far)
            bench.await_clean()


def test_a_short_notice(make: MakeBench) -> None:
    """LEAD is longer than the notice, and FORCE is unset: what no budget holds leaves anyway."""
    with make(DRAIN="true", LEAD="3600") as bench:
        bench.run("free")
        bench.run("held", budget=1)
        with bench.bridge() as bridge:
            event = bench.announce("Preempt", minutes=30)
            dead = bridge.wait_for_log("record_dead", timeout=PATIENCE)
            assert "1 pods are still on the node, and FORCE is not set: default/held" in str(dead)
            bridge.kill()
        soon(lambda: [each.split("-")[0] for each in bench.pods()] == ["held"], what="one pod")
        with bench.bridge():
            bench.end(event)
            bench.await_clean()


def test_a_pod_that_cannot_be_evicted(make: MakeBench) -> None:
    """Kubernetes refuses to evict a pod with two disruption budgets; the others leave."""
    with make(DRAIN="true") as bench:
        bench.run("a", budget=1)
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
        bench.create("policy/v1", "PodDisruptionBudget", "second", spec=spec)
        bench.run("b")
        with bench.bridge() as bridge:
            event = bench.announce()
            down = bridge.wait_for_log("sink_down", timeout=PATIENCE)
            assert "1 pods cannot leave: default/a-" in str(down)
            assert "more than one PodDisruptionBudget" in str(down)
            bridge.kill()
        soon(lambda: [each.split("-")[0] for each in bench.pods()] == ["a"], what="one pod")
        with bench.bridge():
            bench.end(event)
            bench.await_clean()


def test_a_pod_that_came_back_under_its_name(make: MakeBench) -> None:
    """A pod that has left between the look and the request is another one now, and stays."""
    with make() as bench:
        spec = {"nodeName": bench.name, "containers": [{"name": "app", "image": "x.example/a:1"}]}
        bench.create("v1", "Pod", "db-0", spec=spec)
        # The API server itself tries for 10 s whether a conflict passes.
        api = Api(bench.name, kubeconfig=bench.home / "kubeconfig", timeout=60)
        try:
            (seen,) = (pod for pod in api.pods() if pod["metadata"]["name"] == "db-0")
            words = ("delete", "pod", "db-0", "-n", "default", "--force")
            assert bench.cluster.kubectl(*words).returncode == 0
            bench.create("v1", "Pod", "db-0", spec=spec)
            assert api.delete(seen) is None
            assert api.evict(seen) is None
            assert bench.pods() == ["db-0"]
            (there,) = (pod for pod in api.pods() if pod["metadata"]["name"] == "db-0")
            assert api.delete(there) is None
            soon(lambda: bench.pods() == [], what="a deleted pod")
        finally:
            api.close()


def test_a_vm_that_took_over_the_name(make: MakeBench) -> None:
    """A VM is killed while its node is cordoned, and another gets its name and its Node object: the
    new one's bridge takes back what it finds.
    """
    with make(TAINT="true", CORDON="true") as old:
        with old.bridge() as bridge:
            old.announce()
            old.await_marked()
            bridge.kill()
        home = old.home / "new"
        home.mkdir()
        with node_bench_of_another_vm(old, home) as new, new.bridge():
            new.await_clean()


def test_two_bridges_that_meet(make: MakeBench) -> None:
    """An old pod and a new one look after one node for a while; one of them is killed."""
    with make(TAINT="true", DRAIN="true", FORCE="true") as bench:
        bench.run("app")
        other = bench.home / "other"
        other.mkdir()
        apart = {"SEB_STATE_DIR": str(other / "state")}
        with bench.bridge() as first, bench.bridge(**apart):
            event = bench.announce()
            soon(lambda: bench.pods() == [], what="an empty node")
            first.kill()
            bench.end(event)
            bench.await_clean()
        with bench.bridge():
            bench.simulator.wait_until_served()
            soon(lambda: len(bench.pods()) == 1, what="a pod again")
            assert bench.left() == []


def test_an_api_server_that_is_away(make: MakeBench) -> None:
    """For a minute nothing answers; the event is marked once it does."""
    with make(TAINT="true", CORDON="true") as bench, FaultProxy(bench.port) as proxy:
        bench.port = proxy.port
        bench.take_token()
        proxy.spoil(Spoil.REFUSED)
        with bench.bridge() as bridge:
            event = bench.announce()
            down = bridge.wait_for_log("sink_down", timeout=PATIENCE)
            assert "cannot be reached" in str(down)
            bridge.kill()
        with bench.bridge() as bridge:
            # The minute is what is tried.
            threading.Event().wait(60)
            assert bench.left() == []
            proxy.heal()
            bench.await_marked()
            proxy.spoil(Spoil.BLACK_HOLE)
            bench.end(event)
            assert proxy.wait_for_strike(PATIENCE)
            proxy.heal()
            bench.await_clean()
            assert bridge.poll() is None


def test_no_permission(make: MakeBench) -> None:
    """The log says what to do; the event is marked once the role is there."""
    with make(TAINT="true", CORDON="true") as bench:
        with without(bench.cluster, "clusterrolebinding", ROLE), bench.bridge() as bridge:
            event = bench.announce()
            down = str(bridge.wait_for_log("sink_down", timeout=PATIENCE))
            assert "answered 403" in down
            assert "kubernetes.enabled" in down
            bridge.kill()
        with bench.bridge():
            bench.await_marked()
            bench.end(event)
            bench.await_clean()


def test_no_permission_for_events(make: MakeBench) -> None:
    """Kubernetes Events cannot be written: the node is marked and opened again, and the Events come
    once the role is there.
    """
    with make(TAINT="true", CORDON="true") as bench:
        with without(bench.cluster, "rolebinding", ROLE, "-n", "default"):
            with bench.bridge() as bridge:
                event = bench.announce()
                bench.await_marked()
                assert bench.is_closed()
                down = str(bridge.wait_for_log("sink_down", timeout=PATIENCE))
                assert "answered 403" in down
                bridge.kill()
            with bench.bridge():
                bench.end(event)
                bench.await_clean()
        with bench.bridge():
            wanted = ["EventEnded", "EventScheduled"]
            soon(lambda: bench.events() == wanted, what="the events of the node")
            assert bench.left() == []


def test_an_api_server_that_is_busy(make: MakeBench) -> None:
    """It answers 429 (a webhook of admission says so) to each change of the node, for a while."""
    with make(TAINT="true", CORDON="true") as bench:
        with refused_as_too_many(bench), bench.bridge() as bridge:
            event = bench.announce()
            down = str(bridge.wait_for_log("sink_down", timeout=PATIENCE))
            assert "answered 429" in down
            bridge.kill()
        with bench.bridge():
            bench.await_marked()
            bench.end(event)
            bench.await_clean()


def test_conflicts(make: MakeBench) -> None:
    """Another client changes the node all the time; what it wrote stays, and so does ours."""
    with make(TAINT="true", CORDON="true") as bench:
        ended = threading.Event()
        count = [0]

        def change() -> None:
            while not ended.wait(0.005):
                count[0] += 1
                labels = {"metadata": {"labels": {"changed": str(count[0])}}}
                bench.admin.patch(Node, bench.name, labels, patch_type=PatchType.MERGE)

        changing = threading.Thread(target=change)
        changing.start()
        try:
            with bench.bridge() as bridge:
                event = bench.announce()
                bench.await_marked()
                bridge.kill()
            with bench.bridge():
                bench.end(event)
                bench.await_clean()
        finally:
            ended.set()
            changing.join()
        assert bench.node()["metadata"]["labels"]["changed"] == str(count[0])


def test_seb_check(make: MakeBench) -> None:
    """It names what is missing, and what to do: the right, the node, the way to the API server."""
    with make(DRAIN="true", FORCE="true") as bench:
        good = bench.seb("check")
        assert f"there is a node {bench.name}" in good.out
        assert "may do what is asked for" in good.out
        bench.settings["KUBECONFIG"] = str(bench.home / "unbound")
        bench.cluster.write_config(
            bench.home / "unbound", bench.cluster.token("default", "default")
        )
        assert "answered 403" in bench.seb("check").out
        with make() as other:
            bench.settings = {"NODE": other.name}
            wrong = bench.seb("check").out
            assert "set NODE to the name of this VM's own node" in wrong
        with FaultProxy(bench.port) as proxy:
            bench.settings = {}
            bench.port = proxy.port
            bench.take_token()
            proxy.spoil(Spoil.REFUSED)
            assert "see that the pod's network reaches the API server" in bench.seb("check").out


def test_the_token_of_one_node_changes_no_other(
    cluster: KubernetesCluster, make: MakeBench
) -> None:
    """Each thing that RBAC would allow is tried: on another node, and on the own one what is not
    the sink's.
    """
    with make() as own, make() as other, thief_of(own) as thief:
        cluster.kubectl("taint", "node", own.name, "gpu=x:NoSchedule")
        other.run("app")
        (pod,) = other.pods()
        for bench, what, patch in (
            (other, "cordon", {"spec": {"unschedulable": True}}),
            (other, "mark", {"metadata": {"annotations": {ANNOTATION: "{}"}}}),
            (other, "taint", {"spec": {"taints": [our_taint()]}}),
            (own, "label", {"metadata": {"labels": {"node-role.kubernetes.io/x": ""}}}),
            (own, "annotation", {"metadata": {"annotations": {"a": "b"}}}),
            (own, "owner", {"metadata": {"finalizers": ["example.com/x"]}}),
            (own, "others' taint", {"spec": {"taints": []}}),
            (own, "NoExecute", {"spec": {"taints": [gpu_taint(), our_taint("NoExecute")]}}),
            (own, "cordon without a mark", {"spec": {"unschedulable": True}}),
            (own, "a mark without a cordon", {"metadata": {"annotations": {ANNOTATION: MARK}}}),
        ):
            problem = refused(thief, Node, bench.name, patch)
            assert problem.startswith("403 "), f"{what}: {problem}"
        ready = {"type": "Ready", "status": "False", "reason": "x", "message": "x"}
        ours = {**ready, "type": CONDITION}
        for bench, what, status in (
            (other, "condition", {"conditions": [ours]}),
            (own, "Ready", {"conditions": [ready]}),
            (own, "capacity", {"capacity": {"cpu": "1"}}),
            (own, "address", {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}),
        ):
            problem = refused(
                thief, NodeStatus, bench.name, {"status": status}, PatchType.STRATEGIC
            )
            assert problem.startswith("403 "), f"{what}: {problem}"
        config = ("--kubeconfig", str(own.home / "kubeconfig"))
        done = cluster.kubectl(*config, "delete", "pod", pod, "-n", "default")
        assert "deletes no pod of another node" in done.stderr
        done = cluster.kubectl(*config, "delete", "pod", own.pod, "-n", NAMESPACE)
        assert "daemon and mirror pods stay" in done.stderr
        done = cluster.kubectl(*config, "delete", "node", other.name)
        assert "forbidden" in done.stderr
        evict = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": "default"},
        }
        path = f"/api/v1/namespaces/default/pods/{pod}/eviction"
        words = ("create", "--raw", path, "-f", "-")
        done = cluster.kubectl(*config, *words, given=json.dumps(evict))
        assert "names the uid of its pod" in done.stderr
        about = {"kind": "Node", "name": other.name}
        done = cluster.kubectl(
            *(*config, "create", "-n", "default", "-f", "-"), given=json.dumps(event_about(about))
        )
        assert "only events about the own node" in done.stderr
        spoofed = {
            **event_about({"kind": "Node", "name": own.name}),
            "source": {"component": "kubelet"},
        }
        done = cluster.kubectl(
            *(*config, "create", "-n", "default", "-f", "-"), given=json.dumps(spoofed)
        )
        assert "only events about the own node" in done.stderr
        # A person has cordoned the own node: that is not ours to take back.
        cluster.kubectl("cordon", own.name)
        problem = refused(thief, Node, own.name, {"spec": {"unschedulable": None}})
        assert "only the own cordon" in problem
        assert other.left() == []


def test_a_token_of_no_pod_changes_nothing(cluster: KubernetesCluster, make: MakeBench) -> None:
    """A token that somebody made for the service account names no node."""
    with make() as bench:
        pods = cluster.get("pod", bench.pod, "-n", NAMESPACE)
        token = cluster.token(NAMESPACE, pods["spec"]["serviceAccountName"])
        cluster.write_config(bench.home / "kubeconfig", token)
        patch = {"metadata": {"annotations": {ANNOTATION: "{}"}}}
        with thief_of(bench) as thief:
            problem = refused(thief, Node, bench.name, patch)
        assert "is not that of a pod on a node" in problem
        assert "is not that of a pod on a node" in bench.seb("check").out


def test_who_only_shows_cannot_taint_or_cordon(cluster: KubernetesCluster, make: MakeBench) -> None:
    """The policy follows from the settings of the chart."""
    install(cluster, "seb", "shows", "kubernetes")
    with make(namespace="shows") as bench:
        taint = {"spec": {"taints": [our_taint()]}}
        cordon = {
            "metadata": {"annotations": {ANNOTATION: MARK}},
            "spec": {"unschedulable": True},
        }
        with thief_of(bench) as thief:
            assert "ask for no taint" in refused(thief, Node, bench.name, taint)
            assert "ask for no cordon" in refused(thief, Node, bench.name, cordon)
        with bench.bridge() as bridge:
            event = bench.announce()
            bench.await_marked()
            bridge.kill()
        with bench.bridge():
            bench.end(event)
            bench.await_clean()


def test_what_a_drain_without_a_deadline_leaves(make: MakeBench) -> None:
    """`kubectl drain`, whose code others use: where a budget holds a pod it gives up after its
    timeout, and the cordon stays. The sink takes that for another's cordon, and drains anyway.
    """
    with make(DRAIN="true") as bench:
        bench.run("held", budget=1)
        how = ("--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=5s")
        done = bench.cluster.kubectl("drain", bench.name, *how)
        assert done.returncode != 0
        assert len(bench.pods()) == 1
        assert bench.is_closed()
        bench.cluster.kubectl("delete", "poddisruptionbudget", "held", "-n", "default")
        with bench.bridge() as bridge:
            event = bench.announce()
            bench.await_marked()
            bridge.kill()
        with bench.bridge():
            soon(lambda: bench.pods() == [], what="an empty node")
            bench.end(event)
            soon(lambda: bench.left() == ["cordon"], what="our marks gone")


def test_the_policy_is_well_typed(cluster: KubernetesCluster) -> None:
    """The API server finds no expression that it cannot type."""
    found: list[Any] = []

    def is_checked() -> bool:
        found[:] = [cluster.get("validatingadmissionpolicy", ROLE).get("status", {})]
        return "observedGeneration" in found[0]

    soon(is_checked, what="a policy that was looked at")
    assert found[0].get("typeChecking", {}).get("expressionWarnings", []) == []


MARK = json.dumps({"version": 1, "cordoned": True, "events": {}}, separators=(",", ":"))


def our_taint(effect: str = "NoSchedule") -> dict[str, str]:
    """The sink's taint."""
    return {"key": TAINT, "value": "Reboot", "effect": effect}


def gpu_taint() -> dict[str, str]:
    """A taint of another."""
    return {"key": "gpu", "value": "x", "effect": "NoSchedule"}


def event_about(what: dict[str, str]) -> dict[str, Any]:
    """A Kubernetes Event that looks like one of ours."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "x"},
        "involvedObject": what,
        "reason": "x",
        "reportingComponent": "scheduled-events-bridge",
    }


@contextmanager
def without(cluster: KubernetesCluster, *what: str) -> Iterator[None]:
    """An object of the chart is deleted, and made again."""
    made = cluster.get(*what)
    for each in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
        made["metadata"].pop(each, None)
    assert cluster.kubectl("delete", *what).returncode == 0
    try:
        yield
    finally:
        done = cluster.kubectl("create", "-f", "-", given=json.dumps(made))
        assert done.returncode == 0, done.stderr


@contextmanager
def thief_of(bench: NodeBench) -> Iterator[Client]:
    """Somebody who has got hold of the token of the bench's pod."""
    config = KubeConfig.from_file(bench.home / "kubeconfig").get()
    client = Client(config=config, trust_env=False)
    try:
        yield client
    finally:
        client.close()


def refused(
    thief: Client, kind: Any, name: str, patch: Any, how: PatchType = PatchType.MERGE
) -> str:
    """What the API server says of a change, or that it took it."""
    try:
        thief.patch(kind, name, patch, patch_type=how)
    except ApiError as error:
        return f"{error.status.code} {error.status.message}"
    return "it was taken"


@contextmanager
def node_bench_of_another_vm(old: NodeBench, home: Path) -> Iterator[NodeBench]:
    """Another VM on the same Node object, with its own state, and no events."""
    vm = SimulatedVm(name=old.name, vm_id="7a0a2b54-6c0e-4a60-8f0f-2d1d9b0f0c11")
    with Simulator(vm=vm) as simulator:
        made = NodeBench(old.cluster, old.admin, home, simulator, old.namespace)
        made.settings = dict(old.settings)
        made.take_token()
        yield made


class Busy(BaseHTTPRequestHandler):
    """A webhook of admission that refuses all that it is asked about, for now."""

    def do_POST(self) -> None:
        """Answer a review."""
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status = {"code": 429, "message": "come back later"}
        response = {"uid": request["request"]["uid"], "allowed": False, "status": status}
        kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        body = json.dumps({**kind, "response": response}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def refused_as_too_many(bench: NodeBench) -> Iterator[None]:
    """The API server answers 429 when the bridge changes its node."""
    certificate, key = bench.cluster.certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    serving = threading.Thread(target=server.serve_forever, args=(0.05,))
    serving.start()
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["nodes", "nodes/status"],
    }
    ours = f'request.userInfo.username.startsWith("system:serviceaccount:{NAMESPACE}:")'
    webhook = {
        "name": "busy.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "rules": [rule],
        "matchConditions": [{"name": "ours", "expression": ours}],
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.server_address[1]}/",
            "caBundle": base64.b64encode(certificate.read_bytes()).decode(),
        },
    }
    made = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "busy"},
        "webhooks": [webhook],
    }
    try:
        done = bench.cluster.kubectl("create", "-f", "-", given=json.dumps(made))
        assert done.returncode == 0, done.stderr
        with thief_of(bench) as thief:
            nothing: dict[str, Any] = {"metadata": {"annotations": {}}}
            soon(
                lambda: refused(thief, Node, bench.name, nothing).startswith("429"),
                what="an API server that refuses",
            )
        yield
    finally:
        bench.cluster.kubectl("delete", "validatingwebhookconfiguration", "busy")
        server.shutdown()
        server.server_close()
        serving.join()
