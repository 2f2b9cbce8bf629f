"""A real Kubernetes API server with its controller manager and etcd, on loopback, for the chart.

There is no kubelet: pods are made and admitted, and stay pending. With `runs_pods` the scheduler
is there, too, and kwok stands in for the kubelets of the nodes that `add_node` makes: their pods
become running and go, as far as the API server can tell. The binaries are built from Go modules
into the cache: about twenty minutes of two cores, once.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml
from support.ground.cache import cache, fetch, say
from support.ports import free_port

VERSION: Final = "1.34.4"
OPERATOR: Final = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
"""Where the kinds of the chart's monitors come from."""
_KWOK: Final = "sigs.k8s.io/kwok/cmd/kwok@v0.7.0"
_COMMANDS: Final = ("kube-apiserver", "kubectl", "kube-controller-manager", "kube-scheduler")
_TOOLS: Final = {"go": "Go", "helm": "helm", "etcd": "etcd-server", "openssl": "openssl"}
_TOKEN: Final = "a-token-of-the-ground"


def missing() -> str:
    """Why there can be no API server here, in a sentence; empty if there can."""
    os.environ["PATH"] += f":/usr/local/go/bin:{Path.home() / 'go' / 'bin'}"
    names = [package for tool, package in _TOOLS.items() if shutil.which(tool) is None]
    return f"needs {', '.join(names)} (make ground-tools)" if names else ""


def build() -> Path:
    """The directory of the binaries; they are built where they are missing."""
    home = cache("kube")
    binaries = home / VERSION
    if all((binaries / each).exists() for each in _COMMANDS):
        return binaries
    source = home / "source"
    source.mkdir(exist_ok=True)
    module = f"k8s.io/kubernetes@v{VERSION}"
    say(f"kube: building {module}: twenty minutes, once")
    found = json.loads(_go(source, "mod", "download", "-json", module))
    # Kubernetes replaces its own parts by directories; their released modules stand in for them.
    parts = re.findall(r"(k8s\.io/[a-z-]+) => \./staging", Path(found["GoMod"]).read_text())
    minor = VERSION.removeprefix("1.")
    replaced = "".join(f"\t{part} => {part} v0.{minor}\n" for part in parts)
    head = "module kubeground\n\ngo 1.24.0\n\ngodebug default=go1.24\n\n"
    required = f"require k8s.io/kubernetes v{VERSION}\n\nreplace (\n{replaced})\n"
    (source / "go.mod").write_text(head + required)
    imported = "".join(f'\t_ "k8s.io/kubernetes/cmd/{each}"\n' for each in _COMMANDS)
    (source / "tools.go").write_text(
        f"//go:build tools\n\npackage kubeground\n\nimport (\n{imported})\n"
    )
    _go(source, "mod", "tidy", "-e")
    name = "k8s.io/component-base/version"
    numbers = {"gitVersion": f"v{VERSION}", "gitMajor": "1", "gitMinor": minor.split(".")[0]}
    flags = " ".join(["-s", "-w", *(f"-X {name}.{key}={value}" for key, value in numbers.items())])
    for each in _COMMANDS:
        say(f"kube: {each}")
        target = binaries / each
        package = f"k8s.io/kubernetes/cmd/{each}"
        _go(source, "build", "-trimpath", "-ldflags", flags, "-o", str(target), package)
    return binaries


def _add_kwok(binaries: Path) -> None:
    if not (binaries / "kwok").exists():
        say("kube: kwok")
        _go(binaries, "install", "-trimpath", "-ldflags", "-s -w", _KWOK, GOBIN=str(binaries))


def _go(where: Path, *arguments: str, **more: str) -> str:
    env = {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", **more}
    return fetch("nice", "-n", "10", "go", *arguments, where=where, env=env)


class KubernetesCluster:
    """The control plane, from `up` to the end; a context manager that leaves nothing behind."""

    def __init__(self, home: Path, *, runs_pods: bool = False) -> None:
        self._home = home
        self._runs_pods = runs_pods
        self._binaries = build()
        if runs_pods:
            _add_kwok(self._binaries)
        self._programs: list[subprocess.Popen[bytes]] = []
        self._kwok: subprocess.Popen[bytes] | None = None
        self._port, etcd, peer = free_port(), free_port(), free_port()
        self._etcd, self._peer = f"http://127.0.0.1:{etcd}", f"http://127.0.0.1:{peer}"
        self._log = home / "cluster.log"

    def __enter__(self) -> Self:
        key = self._home / "sa.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, stderr=-3)
        (self._home / "tokens.csv").write_text(f"{_TOKEN},admin,1,system:masters\n")
        self.write_config(self.config, _TOKEN)
        self._start(
            *("etcd", "--unsafe-no-fsync", "--data-dir", f"{self._home}/etcd"),
            *("--listen-client-urls", self._etcd),
            *("--advertise-client-urls", self._etcd, "--listen-peer-urls", self._peer),
            *("--initial-advertise-peer-urls", self._peer),
            *("--initial-cluster", f"default={self._peer}"),
        )
        self._start(
            *(str(self._binaries / "kube-apiserver"), f"--etcd-servers={self._etcd}"),
            *("--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"),
            *(f"--secure-port={self._port}", f"--cert-dir={self._home}/certs"),
            *(f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"),
            *("--service-account-issuer=https://kubernetes.default.svc",),
            *(f"--token-auth-file={self._home}/tokens.csv", "--authorization-mode=RBAC"),
            *("--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none"),
            "--disable-admission-plugins=ServiceAccount",
        )
        self._await_ready()
        self._start(
            *(str(self._binaries / "kube-controller-manager"), "--leader-elect=false"),
            *(f"--kubeconfig={self._home}/config", "--bind-address=127.0.0.1"),
            *(f"--service-account-private-key-file={key}", f"--cert-dir={self._home}/certs"),
            f"--secure-port={free_port()}",
        )
        if self._runs_pods:
            self._run_pods()
        else:
            self._add_kinds_and_nodes()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in reversed(self._programs):
            each.terminate()
            with suppress(subprocess.TimeoutExpired):
                each.wait(20)
            each.kill()
            each.wait(20)

    @property
    def port(self) -> int:
        """Where the API server listens on 127.0.0.1."""
        return self._port

    @property
    def certificate(self) -> tuple[Path, Path]:
        """The API server's certificate, which is its own authority, and the key; for 127.0.0.1."""
        return self._home / "certs" / "apiserver.crt", self._home / "certs" / "apiserver.key"

    @property
    def config(self) -> Path:
        """The kubeconfig of somebody who may do everything."""
        return self._home / "config"

    def token(self, namespace: str, account: str, *, pod: str = "", uid: str = "") -> str:
        """A token of a service account, as the kubelet gets it for a pod if one is named."""
        bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod}")
        words = (*bound, f"--bound-object-uid={uid}") if pod else ()
        done = self.kubectl("create", "token", account, "-n", namespace, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def write_config(self, path: Path, token: str, *, port: int | None = None) -> Path:
        """Write a kubeconfig with this token, for this port; its path."""
        cluster = {
            "server": f"https://127.0.0.1:{port or self._port}",
            "certificate-authority": str(self.certificate[0]),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(yaml.safe_dump(config))
        return path

    def add_node(self, name: str, provider_id: str = "") -> None:
        """A node of kwok's, ready."""
        labels = {"kubernetes.io/os": "linux", "kubernetes.io/hostname": name, "kwok": "yes"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"providerID": provider_id} if provider_id else {},
            "status": {"allocatable": {"cpu": "32", "memory": "256Gi", "pods": "110"}},
        }
        done = self.kubectl("create", "-f", "-", given=json.dumps(node))
        assert done.returncode == 0, done.stderr
        deadline = time.monotonic() + 180
        ready = ("wait", "--for=condition=Ready", f"node/{name}", "--timeout=5s")
        while self.kubectl(*ready).returncode:
            assert time.monotonic() < deadline, self._log.read_text()[-3000:]
            # kwok may panic over a node that was deleted (DeletedFinalStateUnknown, 0.7 and 0.8).
            if self._kwok is not None and self._kwok.poll() is not None:
                self._start_kwok()

    def kubectl(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """The outcome of a command, with this on its standard input."""
        return self._run(str(self._binaries / "kubectl"), *words, given=given)

    def helm(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The outcome of a command."""
        return self._run("helm", *words)

    def get(self, *words: str) -> Any:
        """What kubectl gets, read. Raises `AssertionError` where it gets nothing."""
        done = self.kubectl("get", *words, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def namespace(self, name: str, **labels: str) -> str:
        """A new namespace, with the labels of Pod Security."""
        marked = {f"pod-security.kubernetes.io/{mode}": level for mode, level in labels.items()}
        made = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": marked},
        }
        done = self.kubectl("create", "-f", "-", given=json.dumps(made))
        assert done.returncode == 0, done.stderr
        return name

    def _run(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            input=given,
            env={**os.environ, "KUBECONFIG": str(self._home / "config")},
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            started = subprocess.Popen(words, stdout=log, stderr=log, cwd=self._home)
        self._programs.append(started)
        return started

    def _await_ready(self) -> None:
        deadline = time.monotonic() + 180
        while self.kubectl("get", "--raw", "/readyz").stdout != "ok":
            assert time.monotonic() < deadline, self._log.read_text()[-3000:]
            time.sleep(0.5)

    def _run_pods(self) -> None:
        self._start(
            *(str(self._binaries / "kube-scheduler"), "--leader-elect=false"),
            *(f"--kubeconfig={self._home}/config", "--bind-address=127.0.0.1"),
            *(f"--secure-port={free_port()}", f"--cert-dir={self._home}/certs"),
        )
        self._start_kwok()

    def _start_kwok(self) -> None:
        port = free_port()
        self._kwok = self._start(
            *(str(self._binaries / "kwok"), f"--kubeconfig={self._home}/config"),
            *("--manage-all-nodes=false", "--manage-nodes-with-label-selector=kwok=yes"),
            *(f"--server-address=127.0.0.1:{port}", f"--node-port={port}", "--node-ip=127.0.0.1"),
            *("--cidr=10.1.0.0/16", "--node-lease-duration-seconds=40"),
        )

    def _add_kinds_and_nodes(self) -> None:
        """Two nodes, and the kinds of the Prometheus operator and of Azure's copy of it."""
        found = json.loads(_go(cache("kube") / "source", "mod", "download", "-json", OPERATOR))
        kinds = Path(found["Dir"]) / "example" / "prometheus-operator-crd"
        for name in ("podmonitors", "prometheusrules"):
            text = (kinds / f"monitoring.coreos.com_{name}.yaml").read_text()
            for group in ("monitoring.coreos.com", "azmonitoring.coreos.com"):
                given = text.replace("monitoring.coreos.com", group)
                done = self.kubectl("create", "-f", "-", given=given)
                assert done.returncode == 0, done.stderr
        for name in ("a", "b"):
            labels = {"kubernetes.io/os": "linux"}
            metadata = {"name": f"node-{name}", "labels": labels}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
            self.kubectl("create", "-f", "-", given=json.dumps(node))
