"""A node of a Kubernetes cluster as a destination."""

from sinks.kubernetes.sink import KubernetesSink

__all__ = ["KubernetesSink"]
