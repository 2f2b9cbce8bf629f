"""The pods of a node that are evicted; values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sinks.errors import Problem

HELD: Final = Problem("held by a disruption budget")
"""The reason if a pod's disruption budget does not allow its eviction now."""
_MIRROR: Final = "kubernetes.io/config.mirror"
_ENDED: Final = ("Succeeded", "Failed")


def to_evict(pods: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the pods that must leave the node, as `kubectl drain` sees it.

    Mirror pods stay, because the kubelet would start them again, and so do the pods of a DaemonSet,
    this bridge's among them.
    """
    return [pod for pod in pods if not _stays(pod)]


def _stays(pod: Mapping[str, Any]) -> bool:
    metadata = pod.get("metadata", {})
    if _MIRROR in (metadata.get("annotations") or {}):
        return True
    if pod.get("status", {}).get("phase") in _ENDED:
        return True
    owners = metadata.get("ownerReferences") or []
    return any(each.get("controller") and each.get("kind") == "DaemonSet" for each in owners)


def name_of(pod: Mapping[str, Any]) -> str:
    """Return `namespace/name`, for people."""
    metadata = pod.get("metadata", {})
    return f"{metadata.get('namespace')}/{metadata.get('name')}"


def is_leaving(pod: Mapping[str, Any]) -> bool:
    """Check whether the pod's deletion was already requested."""
    return pod.get("metadata", {}).get("deletionTimestamp") is not None
