"""The few requests to the API server, each about the sink's own node. It makes no decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx2
from lightkube import Client, KubeConfig
from lightkube.core.client import FieldSelector
from lightkube.core.exceptions import ApiError, ConfigError
from lightkube.models.authorization_v1 import ResourceAttributes, SelfSubjectAccessReviewSpec
from lightkube.models.core_v1 import EventSource, ObjectReference
from lightkube.models.meta_v1 import DeleteOptions, ObjectMeta, Preconditions
from lightkube.resources.authorization_v1 import SelfSubjectAccessReview
from lightkube.resources.core_v1 import Event, Node, NodeStatus, Pod, PodEviction
from lightkube.types import PatchType

from sinks.base import Problem, SinkError
from sinks.kinds.kubernetes.marks import ConflictError
from sinks.kinds.kubernetes.pods import HELD

T = TypeVar("T")

COMPONENT: Final = "scheduled-events-bridge"
_NAMESPACE: Final = "default"
"""The namespace for Kubernetes Events about nodes, which have no namespace themselves."""
_MAX_BYTES: Final = 200 * 1024
"""The most bytes of a record in an annotation; Kubernetes allows 256 KiB of annotations on an
object.
"""
_ABOUT_ALL: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS)
"""Statuses that are not about one pod: the API server is busy, or does not accept the token."""
_REMEDIES: Final = {
    HTTPStatus.UNAUTHORIZED: "see that the pod mounts the token of its service account",
    HTTPStatus.FORBIDDEN: "see the role of the service account: the chart's `kubernetes.enabled` "
    "makes it, and its policy allows a change of the pod's own node only",
    HTTPStatus.NOT_FOUND: "see NODE: it is the name of the node in the cluster",
}


class Api:
    """The requests that one node needs from the API server. All methods raise `SinkError`."""

    def __init__(self, node: str, *, kubeconfig: Path | None, timeout: float) -> None:
        self._node = node
        try:
            config = (
                KubeConfig.from_service_account()
                if kubeconfig is None
                else KubeConfig.from_file(kubeconfig)
            )
            self._client = Client(
                config=config.get(),
                namespace=_NAMESPACE,
                timeout=httpx2.Timeout(timeout),
                field_manager=COMPONENT,
                trust_env=False,
            )
        except Exception as error:  # noqa: BLE001  # the file is anybody's, and so are its mistakes
            where = "the pod's service account" if kubeconfig is None else str(kubeconfig)
            # Other messages about a file show a part of it, which may be the token.
            reason = (
                str(error) if isinstance(error, (ConfigError, OSError)) else type(error).__name__
            )
            raise SinkError(
                f"{where} gives no way to the API server: {reason}",
                remedy="run it as a pod with a service account, or set KUBECONFIG to a file",
            ) from None

    def close(self) -> None:
        """Close the connections; may be called from another thread."""
        self._client.close()

    def node(self) -> Mapping[str, Any]:
        """Return the node as it is now."""
        return _plain(self._request(lambda: self._client.get(Node, self._node)))

    def patch(self, patch: Mapping[str, Any], *, dry_run: bool = False) -> Mapping[str, Any]:
        """Change the node. Raises `ConflictError` if somebody else changed it first."""
        return _plain(
            self._request(
                lambda: self._client.patch(
                    Node,
                    self._node,
                    dict(patch),
                    patch_type=PatchType.MERGE,
                    dry_run=dry_run,
                )
            )
        )

    def patch_status(self, patch: Mapping[str, Any]) -> None:
        """Change the node's conditions."""
        self._request(lambda: self._client.patch(NodeStatus, self._node, dict(patch)))

    def add_event(
        self,
        record_id: str,
        *,
        uid: str,
        reason: str,
        message: str,
        at: str,
        warning: bool,
        record: str,
    ) -> None:
        """Write the Kubernetes Event of a record about the node; one that exists already counts as
        written.

        A record that is too large for an annotation is left out: the message has most of it.
        """
        fits = len(record.encode()) <= _MAX_BYTES
        annotations = {f"{COMPONENT}/record": record} if fits else None
        event = Event(
            metadata=ObjectMeta(name=f"{self._node}.{record_id}", annotations=annotations),
            involvedObject=ObjectReference(kind="Node", name=self._node, uid=uid),
            reason=reason,
            message=message[:1024],
            type="Warning" if warning else "Normal",
            source=EventSource(component=COMPONENT, host=self._node),
            firstTimestamp=datetime.fromisoformat(at),
            lastTimestamp=datetime.fromisoformat(at),
            count=1,
            reportingComponent=COMPONENT,
            reportingInstance=self._node,
        )
        try:
            self._request(lambda: self._client.create(event, namespace=_NAMESPACE))
        except ConflictError:
            return  # the record was delivered before

    def pods(self) -> list[Mapping[str, Any]]:
        """Return the pods on the node."""
        fields: FieldSelector = {"spec.nodeName": self._node}
        return self._request(
            lambda: [_plain(pod) for pod in self._client.list(Pod, namespace="*", fields=fields)]
        )

    def evict(self, pod: Mapping[str, Any]) -> Problem | None:
        """Ask for the eviction of a pod; return what prevents it, with the reason `HELD` for a
        disruption budget.
        """
        metadata = pod["metadata"]
        eviction = PodEviction(
            metadata=ObjectMeta(name=metadata["name"], namespace=metadata["namespace"]),
            # Another pod under the same name is not the one that was to leave.
            deleteOptions=DeleteOptions(preconditions=Preconditions(uid=metadata["uid"])),
        )
        return self._removed(
            lambda: self._client.create(eviction, metadata["name"], namespace=metadata["namespace"])
        )

    def delete(self, pod: Mapping[str, Any]) -> Problem | None:
        """Delete a pod, whatever its disruption budget says; return what prevents it."""
        metadata = pod["metadata"]
        # The client's own `delete` takes no uid: a pod that has come back under the same name,
        # perhaps on another node, is not the one that was to leave.
        request = self._client._client.request  # noqa: SLF001
        where = {"name": metadata["name"], "namespace": metadata["namespace"]}
        return self._removed(
            lambda: request("delete", res=Pod, params={"uid": metadata["uid"]}, **where)
        )

    def _removed(self, request: Callable[[], object]) -> Problem | None:
        try:
            request()
        except ApiError as error:
            code = error.status.code
            # Gone, or another pod under the same name: what was to leave has left.
            if code in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                return None
            details = error.status.details
            causes = (details.causes if details is not None else None) or []
            if any(each.reason == "DisruptionBudget" for each in causes):
                return HELD
            if code in _ABOUT_ALL:
                raise _error(error) from None
            # Such as a pod with two budgets, or one that a webhook of admission keeps.
            return _error(error).problem
        except (httpx2.HTTPError, OSError, ValueError) as error:
            raise _error(error) from None
        return None

    def may(self, verb: str, resource: str, *, subresource: str = "", name: str = "") -> bool:
        """Check whether the service account may do this to the object that the sink would
        change.
        """
        wanted = ResourceAttributes(
            verb=verb,
            resource=resource,
            subresource=subresource,
            name=name,
            namespace=_NAMESPACE if resource == "events" else "",
        )
        review = SelfSubjectAccessReview(
            spec=SelfSubjectAccessReviewSpec(resourceAttributes=wanted)
        )
        found = self._request(lambda: self._client.create(review))
        return found.status is not None and bool(found.status.allowed)

    def _request(self, request: Callable[[], T]) -> T:
        try:
            return request()
        except ApiError as error:
            if error.status.code == HTTPStatus.CONFLICT:
                raise ConflictError from None
            raise _error(error) from None
        except (httpx2.HTTPError, OSError, ValueError) as error:
            raise _error(error) from None


def _error(error: Exception) -> SinkError:
    if isinstance(error, ApiError):
        code = error.status.code or error.response.status_code
        remedy = _REMEDIES.get(HTTPStatus(code)) if code in set(HTTPStatus) else None
        found = Problem(
            f"the API server answered {code}: {(error.status.message or '')[:300]}", remedy
        )
        after = error.response.headers.get("retry-after", "") if error.response else ""
        # A server that asks for no wait is overloaded all the same: 0 leaves the back-off as it is.
        wait = float(after) if after.isdecimal() else 0.0
        return SinkError(found, retry_after=wait or None)
    # Of a header that cannot be sent, the library shows the value, which is the token.
    is_plain = isinstance(error, (httpx2.TransportError, OSError)) and not isinstance(
        error, httpx2.LocalProtocolError
    )
    reason = f": {str(error)[:300]}" if is_plain else ""
    return SinkError(
        f"the API server cannot be reached: {type(error).__name__}{reason}",
        remedy="see that the pod's network reaches the API server",
    )


def _plain(found: Any) -> Mapping[str, Any]:
    return dict(found.to_dict())
