"""A node of a Kubernetes cluster as a destination."""

from sinks.kinds.kubernetes.sink import KubernetesSink

__all__ = ["KubernetesSink"]
