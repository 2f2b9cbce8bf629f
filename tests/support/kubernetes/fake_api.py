"""A stand-in for a Kubernetes API server, as far as one node needs it: nodes, pods, evictions,
events and access reviews over HTTP, with the versions and refusals of the real one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

_NODE: Final = "/api/v1/nodes/"
_EVENTS: Final = "/api/v1/namespaces/default/events"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class FakeApi:
    """One cluster; a context manager. `url` is its address, `kubeconfig` writes the way to it."""

    def __init__(self, port: int = 0) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        """By `namespace/name`."""
        self.events: list[dict[str, Any]] = []
        self.protected: set[str] = set()
        """Pods whose disruption budget allows no eviction."""
        self.unevictable: dict[str, int] = {}
        """Status codes that answer the eviction of a pod, such as 500 where it has two budgets."""
        self.refuses_patches = 0
        """The status code that answers each change of a node; 0 if they are taken."""
        self.refuses_events = 0
        """The status code that answers each Event; 0 if they are taken."""
        self.forbidden: set[tuple[str, str]] = set()
        """Verb and resource (`nodes/status`) that the service account may not use."""
        self.refusals: list[int] = []
        """Status codes that answer the next requests."""
        self.retry_after: str | None = None
        """The header of every answer, if there is one."""
        self.requests: list[tuple[str, str]] = []
        self.until_cut: int | None = None
        """How many requests are answered until one is not, whose connection ends; None: all are."""
        self.cuts_done = False
        """Whether what that request asks for is done all the same."""
        self.before_patch: Callable[[], None] = lambda: None
        """Called before a patch is looked at: somebody else who is faster."""
        self._version = 0
        self._lock = threading.RLock()
        self._port = port
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen, at the same address as before."""
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # one packet an answer

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                del format, args

            def _serve(self) -> None:
                size = int(self.headers.get("content-length") or 0)
                body = json.loads(self.rfile.read(size) or b"null")
                is_cut = fake._is_cut()
                if is_cut and not fake.cuts_done:
                    self.close_connection = True
                    return
                code, answer = fake._answer(self.command, self.path, body)
                if is_cut:
                    self.close_connection = True
                    return
                data = json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("content-type", "application/json")
                if fake.retry_after is not None:
                    self.send_header("retry-after", fake.retry_after)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                self.wfile.flush()

            do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

        self._server = Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Become unreachable."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig with the way to it; its path."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": "a-secret-token"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(config))
        return path

    def add_node(self, name: str, **spec: Any) -> dict[str, Any]:
        """A node, made anew if it was there."""
        with self._lock:
            self._version += 1
            self.nodes[name] = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "uid": f"uid-{self._version}",
                    "resourceVersion": str(self._version),
                },
                "spec": dict(spec),
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }
            return self.nodes[name]

    def add_pod(self, name: str, node: str, *, daemon: bool = False, mirror: bool = False) -> None:
        """A running pod on a node."""
        metadata: dict[str, Any] = {"name": name, "namespace": "shop", "uid": f"uid-{name}"}
        if daemon:
            owner = {"kind": "DaemonSet", "controller": True, "name": "d", "uid": "u"}
            metadata["ownerReferences"] = [{**owner, "apiVersion": "apps/v1"}]
        if mirror:
            metadata["annotations"] = {"kubernetes.io/config.mirror": "x"}
        self.pods[f"shop/{name}"] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": "Running"},
        }

    def _is_cut(self) -> bool:
        with self._lock:
            if self.until_cut is None:
                return False
            self.until_cut -= 1
            if self.until_cut >= 0:
                return False
            self.until_cut = None
            return True

    def _answer(self, method: str, target: str, body: Any) -> tuple[int, Any]:
        parts = urlsplit(target)
        with self._lock:
            self.requests.append((method, parts.path))
            if self.refusals:
                return _status(self.refusals.pop(0), "as the test wants it")
            if parts.path == _REVIEWS:
                return 201, self._review(body)
            if parts.path.startswith(_NODE):
                is_dry = "dryRun" in parse_qs(parts.query)
                rest = parts.path.removeprefix(_NODE)
                return self._about_node(method, rest, body, is_dry=is_dry)
            if parts.path == _EVENTS:
                return self._add_event(body)
            if parts.path == "/api/v1/pods":
                wanted = parse_qs(parts.query)["fieldSelector"][0].rpartition("=")[2]
                found = [p for p in self.pods.values() if p["spec"]["nodeName"] == wanted]
                return 200, {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": found}
            uid = parse_qs(parts.query).get("uid", [""])[0]
            if method == "POST":
                uid = body["deleteOptions"]["preconditions"]["uid"]
            return self._about_pod(method, parts.path, uid)

    def _about_node(self, method: str, rest: str, body: Any, *, is_dry: bool) -> tuple[int, Any]:
        name, _, subresource = rest.partition("/")
        if method == "PATCH":
            self.before_patch()
        node = self.nodes.get(name)
        resource = f"nodes/{subresource}" if subresource else "nodes"
        if (method.lower(), resource) in self.forbidden:
            return _status(403, f"cannot {method.lower()} {resource}")
        if node is None:
            return _status(404, f'nodes "{name}" not found')
        if method == "PATCH" and self.refuses_patches:
            return _status(self.refuses_patches, "as the test wants it")
        if method == "GET" or is_dry:
            return 200, node
        wanted = (body.get("metadata") or {}).get("resourceVersion")
        if wanted is not None and wanted != node["metadata"]["resourceVersion"]:
            return _status(409, "the object has been modified")
        if subresource:
            _merge_conditions(node, body["status"]["conditions"])
        else:
            _merge(node, body)
        self._version += 1
        node["metadata"]["resourceVersion"] = str(self._version)
        return 200, node

    def _add_event(self, body: Any) -> tuple[int, Any]:
        if self.refuses_events:
            return _status(self.refuses_events, "as the test wants it")
        name = body["metadata"]["name"]
        if len(json.dumps(body["metadata"].get("annotations"))) > 256 * 1024:
            return _status(422, "metadata.annotations: Too long")
        if any(each["metadata"]["name"] == name for each in self.events):
            return _status(409, "already exists")
        self.events.append(body)
        return 201, body

    def _about_pod(self, method: str, path: str, uid: str) -> tuple[int, Any]:
        words = path.split("/")
        key = f"{words[4]}/{words[6]}"
        if key not in self.pods:
            return _status(404, f'pods "{key}" not found')
        if uid != self.pods[key]["metadata"]["uid"]:
            return _status(409, "the UID in the precondition does not match")
        if method == "POST" and key in self.unevictable:
            return _status(self.unevictable[key], "as the test wants it")
        if method == "POST" and key in self.protected:
            code, status = _status(429, "it would violate the pod's disruption budget")
            return code, {**status, "details": {"causes": [{"reason": "DisruptionBudget"}]}}
        del self.pods[key]
        return (201 if method == "POST" else 200), {"apiVersion": "v1", "kind": "Status"}

    def _review(self, body: Any) -> Any:
        wanted = body["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (wanted["resource"], wanted.get("subresource"))))
        allowed = (wanted["verb"], resource) not in self.forbidden
        if resource == "events" and wanted.get("namespace") != "default":
            allowed = False  # the role is for this namespace alone
        return {**body, "status": {"allowed": allowed}}


def _status(code: int, message: str) -> tuple[int, dict[str, Any]]:
    status = {"apiVersion": "v1", "kind": "Status", "status": "Failure"}
    return code, {**status, "message": message, "code": code}


def _merge(below: dict[str, Any], above: Mapping[str, Any]) -> None:
    """A JSON merge patch (RFC 7396), in place."""
    for key, value in above.items():
        if value is None:
            below.pop(key, None)
        elif isinstance(value, Mapping):
            inner = below.setdefault(key, {})
            _merge(inner, value)
        else:
            below[key] = value


def _merge_conditions(node: dict[str, Any], changes: list[dict[str, Any]]) -> None:
    """The strategic merge of conditions, which Kubernetes tells apart by their type."""
    found = {each["type"]: each for each in node["status"]["conditions"]}
    for change in changes:
        if change.get("$patch") == "delete":
            found.pop(change["type"], None)
        else:
            found[change["type"]] = {**found.get(change["type"], {}), **change}
    node["status"]["conditions"] = list(found.values())
