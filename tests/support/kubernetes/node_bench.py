"""A node of a real API server with the VM that it is: its events, its pod's token, its bridge."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from lightkube import Client, KubeConfig
from lightkube.resources.core_v1 import Event, Node, Pod
from support.ground.kube import KubernetesCluster
from support.process.bridge import BridgeProcess, EndedCommand, fast, run_seb

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator
from bridge.simulator.vm import SimulatedVm
from sinks.kinds.kubernetes.marks import ANNOTATION, CONDITION, TAINT

PATIENCE: Final = 120.0
APP: Final = "registry.example/app:1"


def soon(done: Callable[[], bool], what: str) -> None:
    """Look a few times a second until it holds: each look is a request to the API server.

    Raises `AssertionError`.
    """
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, f"{what} did not come within {PATIENCE:g} s"
        time.sleep(0.3)


class NodeBench:
    """One node, its VM's Scheduled Events, and the bridge of its DaemonSet's pod.

    The bridge runs here, not in the pod, with the token that the kubelet would mount. `port` is
    that of the API server, or of a proxy before it.
    """

    def __init__(
        self,
        cluster: KubernetesCluster,
        admin: Client,
        home: Path,
        simulator: Simulator,
        namespace: str,
    ) -> None:
        self.cluster = cluster
        self.admin = admin
        self.home = home
        self.simulator = simulator
        self.namespace = namespace
        self.name = simulator.vm.name
        self.port = cluster.port
        self.pod: str = ""
        self.settings: dict[str, str] = {}

    def add(self) -> None:
        """Make the node, and wait for the DaemonSet's pod on it."""
        self.cluster.add_node(self.name, f"azure://{self.simulator.vm.resource_id}")
        self.take_token()

    def take_token(self) -> None:
        """Take the token of the DaemonSet's pod that is on the node now."""
        found: list[Pod] = []

        def running() -> bool:
            found[:] = [
                pod
                for pod in self._pods(self.namespace)
                if pod.status is not None
                and pod.status.phase == "Running"
                and pod.metadata is not None
                and pod.metadata.deletionTimestamp is None
            ]
            return bool(found)

        soon(running, what="the bridge's pod on the node")
        metadata = found[0].metadata
        assert metadata is not None
        assert metadata.name is not None
        assert metadata.uid is not None
        self.pod = metadata.name
        account = found[0].spec.serviceAccountName if found[0].spec else None
        token = self.cluster.token(
            self.namespace, account or "", pod=metadata.name, uid=metadata.uid
        )
        self.cluster.write_config(self.home / "kubeconfig", token, port=self.port)

    # The bridge.

    @property
    def env(self) -> dict[str, str]:
        """The variables of the bridge."""
        ours = {
            "SEB_NODE__NODE": self.name,
            "SEB_SINK__NODE__KIND": "kubernetes",
            "SEB_SINK__NODE__KUBECONFIG": str(self.home / "kubeconfig"),
            **{f"SEB_SINK__NODE__{name}": value for name, value in self.settings.items()},
        }
        return fast(self.simulator.url, self.home, **ours)

    def bridge(self, **more: str) -> BridgeProcess:
        """A bridge on the state of the one before it."""
        return BridgeProcess("run", env={**self.env, **more}, home=self.home)

    def seb(self, *words: str) -> EndedCommand:
        """The outcome of a command of the bridge."""
        return run_seb(*words, home=self.home, env=self.env)

    def backlog(self) -> int:
        """How many records the sinks have not taken."""
        ended = self.seb("outbox", "list", "--json")
        assert ended.code == 0, ended.err
        return sum(each["backlog"] for each in json.loads(ended.out)["sinks"])

    # Its events.

    def announce(
        self, event_type: str = "Reboot", *, minutes: float = 15.0, **more: Any
    ) -> SimulatedEvent:
        """Azure announces an event of this VM."""
        not_before = datetime.now(UTC) + timedelta(minutes=minutes)
        event = SimulatedEvent(event_type=event_type, not_before=not_before, **more)
        return self.simulator.announce(event)

    def bring_forward(self, event: SimulatedEvent, *, minutes: float) -> None:
        """Azure says another notBefore."""
        self.simulator.move(event.event_id, datetime.now(UTC) + timedelta(minutes=minutes))

    def end(self, event: SimulatedEvent) -> None:
        """The event is over, or was taken back before it started."""
        self.simulator.end_event(event.event_id)

    # What stands on the node.

    def node(self) -> dict[str, Any]:
        """The node as it is now."""
        return dict(self.admin.get(Node, self.name).to_dict())

    def condition(self) -> dict[str, Any] | None:
        """Our condition."""
        found = self.node()["status"]["conditions"]
        return next((each for each in found if each["type"] == CONDITION), None)

    def is_closed(self) -> bool:
        """Whether it is cordoned."""
        return self.node()["spec"].get("unschedulable") is True

    def taints(self) -> list[tuple[str, str]]:
        """Key and effect of every taint that is not Kubernetes' own."""
        taints = self.node()["spec"].get("taints") or []
        pairs = [(each["key"], each["effect"]) for each in taints]
        return [each for each in pairs if not each[0].startswith("node.kubernetes.io/")]

    def left(self) -> list[str]:
        """What is left of ours."""
        node = self.node()
        marks = [ANNOTATION] if ANNOTATION in (node["metadata"].get("annotations") or {}) else []
        condition = [CONDITION] if self.condition() else []
        taints = [key for key, _ in self.taints() if key == TAINT]
        return [*marks, *condition, *taints, *(["cordon"] if self.is_closed() else [])]

    def events(self) -> list[str]:
        """The reasons of the Kubernetes Events about the node that are ours."""
        fields = {"involvedObject.name": self.name, "source": "scheduled-events-bridge"}
        found = self.admin.list(Event, namespace="default", fields=fields)  # type: ignore[arg-type]
        return sorted(each.reason or "" for each in found)

    def await_marked(self, what: str = "the event on the node") -> None:
        """Wait until the condition is there."""
        soon(lambda: self.condition() is not None, what=what)

    def await_clean(self) -> None:
        """Wait until nothing of ours is left on the node."""
        soon(lambda: not self.left(), what="a node without our marks")

    # What runs on it.

    def pods(self) -> list[str]:
        """The names of the pods on the node, those of the bridges left out."""
        found = self._pods("default")
        return sorted(str(each.metadata.name) for each in found if each.metadata is not None)

    def run(self, name: str, *, budget: int | None = None) -> None:
        """Run a Deployment of one pod on this node; `budget` is the least that must be there."""
        labels = {"app": name}
        spec = {
            "nodeSelector": {"kubernetes.io/hostname": self.name},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "app", "image": APP}],
        }
        template = {"metadata": {"labels": labels}, "spec": spec}
        self.create(
            "apps/v1",
            "Deployment",
            name,
            spec={"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
        )
        if budget is not None:
            self.create(
                "policy/v1",
                "PodDisruptionBudget",
                name,
                spec={"minAvailable": budget, "selector": {"matchLabels": labels}},
            )
        soon(
            lambda: any(each.startswith(f"{name}-") for each in self.pods()),
            what=f"a pod of {name}",
        )
        done = self.cluster.kubectl(
            "rollout", "status", f"deployment/{name}", "-n", "default", "--timeout=120s"
        )
        assert done.returncode == 0, done.stderr
        if budget is not None:
            what = "a budget that is known"
            soon(lambda: self._budget_is_known(name), what=what)

    def run_mirror(self, name: str) -> None:
        """A pod of the node itself, as the kubelet shows a static pod."""
        self.create(
            "v1",
            "Pod",
            name,
            annotations={"kubernetes.io/config.mirror": "x"},
            spec={"nodeName": self.name, "containers": [{"name": "app", "image": APP}]},
        )

    def create(self, version: str, kind: str, name: str, **parts: Any) -> None:
        """Make an object in the namespace `default`."""
        metadata = {"name": name, "annotations": parts.pop("annotations", {})}
        made = {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}
        done = self.cluster.kubectl("create", "-n", "default", "-f", "-", given=json.dumps(made))
        assert done.returncode == 0, done.stderr

    def _budget_is_known(self, name: str) -> bool:
        found = self.cluster.get("poddisruptionbudget", name, "-n", "default")
        return bool(found.get("status", {}).get("currentHealthy"))

    def _pods(self, namespace: str) -> list[Pod]:
        fields = {"spec.nodeName": self.name}
        return list(self.admin.list(Pod, namespace=namespace, fields=fields))  # type: ignore[arg-type]


@contextmanager
def node_bench(
    cluster: KubernetesCluster, home: Path, namespace: str, *, name: str = "", **settings: str
) -> Iterator[NodeBench]:
    """A new node, with the VM that it is; its pods are gone afterwards."""
    admin = Client(config=KubeConfig.from_file(cluster.config).get(), trust_env=False)
    made = name or f"aks-{uuid4().hex[:8]}"
    vm = SimulatedVm(name=made, vm_id=str(uuid4()))
    with Simulator(vm=vm, approval_delay=0.2) as simulator:
        bench = NodeBench(cluster, admin, home, simulator, namespace)
        bench.settings = dict(settings)
        bench.add()
        try:
            yield bench
        finally:
            kinds = "deployment,poddisruptionbudget,pod"
            cluster.kubectl("delete", kinds, "--all", "-n", "default", "--wait=false", "--force")
            admin.close()
