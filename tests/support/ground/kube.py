"""A real Kubernetes API server with its controller manager and etcd, on loopback, for the chart.

There is no kubelet: pods are made and admitted, and stay pending. The binaries are built from the
Go modules of Kubernetes into the cache: about twenty minutes of two cores, once.
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


def _go(where: Path, *arguments: str) -> str:
    env = {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    return fetch("nice", "-n", "10", "go", *arguments, where=where, env=env)


class Cluster:
    """The control plane, from `up` to the end; a context manager that leaves nothing behind."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._binaries = build()
        self._programs: list[subprocess.Popen[bytes]] = []
        self._port, etcd, peer = free_port(), free_port(), free_port()
        self._etcd, self._peer = f"http://127.0.0.1:{etcd}", f"http://127.0.0.1:{peer}"
        self._log = home / "cluster.log"

    def __enter__(self) -> Self:
        key = self._home / "sa.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, stderr=-3)
        (self._home / "tokens.csv").write_text(f"{_TOKEN},admin,1,system:masters\n")
        self._write_config()
        self._start(
            *("etcd", "--data-dir", f"{self._home}/etcd", "--listen-client-urls", self._etcd),
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
        )
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

    def _start(self, *words: str) -> None:
        with self._log.open("ab") as log:
            started = subprocess.Popen(words, stdout=log, stderr=log, cwd=self._home)
        self._programs.append(started)

    def _await_ready(self) -> None:
        deadline = time.monotonic() + 180
        while self.kubectl("get", "--raw", "/readyz").stdout != "ok":
            assert time.monotonic() < deadline, self._log.read_text()[-3000:]
            time.sleep(0.5)

    def _write_config(self) -> None:
        server = f"https://127.0.0.1:{self._port}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}
            ],
            "users": [{"name": "u", "user": {"token": _TOKEN}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (self._home / "config").write_text(yaml.safe_dump(config))

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
