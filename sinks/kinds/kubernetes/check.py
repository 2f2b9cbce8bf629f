"""The lines of `seb check` about a node, one per step. It changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from sinks.base import Check, SinkError
from sinks.kinds.kubernetes.marks import ANNOTATION
from sinks.kinds.kubernetes.settings import KubernetesSettings
from wire.vm import VmIdentity

if TYPE_CHECKING:
    from sinks.kinds.kubernetes.api import Api

_ROLE: Final = "install the chart with kubernetes.enabled=true, or give the role of docs/aks.md"


def check_node(
    api: Api, node: str, settings: KubernetesSettings, vm: VmIdentity
) -> Iterator[Check]:
    """Yield the lines for the node, whether it is this VM, and each permission; stop at the first
    step that fails.
    """
    try:
        found = api.node()
        yield Check.ok(f"the API server answers, and there is a node {node}")
        require_own_node(found, vm)
        for verb, resource, subresource in _needed(settings):
            name = node if resource == "nodes" else ""
            if not api.may(verb, resource, subresource=subresource, name=name):
                what = "/".join(filter(None, (resource, subresource)))
                yield Check.fail(f"the service account may not {verb} {what}", _ROLE)
                return
        # A role says nothing of admission: a policy may bind the token to another node, or to none.
        own = (found["metadata"].get("annotations") or {}).get(ANNOTATION)
        api.patch({"metadata": {"annotations": {ANNOTATION: own}}}, dry_run=True)
        yield Check.ok("the service account may do what the settings need")
        if settings.prepares and not (settings.drain or settings.cordon or settings.taint):
            yield Check.warn(
                "PREPARES is set, but the sink only shows events: every event counts as prepared",
                "set DRAIN, CORDON or TAINT",
            )
    except SinkError as error:
        yield Check.problem(error.problem, "see that the pod's network reaches the API server")


def _needed(settings: KubernetesSettings) -> Iterator[tuple[str, str, str]]:
    yield "get", "nodes", ""
    yield "patch", "nodes", ""
    yield "patch", "nodes", "status"
    yield "create", "events", ""
    if settings.drain:
        yield "list", "pods", ""
        yield "create", "pods", "eviction"
    if settings.drain and settings.force:
        yield "delete", "pods", ""


def require_own_node(node: Mapping[str, Any], vm: VmIdentity) -> None:
    """Raise `SinkError` if the node is another VM: the sink would drain that VM for events of this
    one.
    """
    provider = str(node.get("spec", {}).get("providerID") or "")
    if vm.resource_id and provider and not _is_same(provider, vm.resource_id):
        name = node.get("metadata", {}).get("name")
        raise SinkError(
            f"the node {name} is {provider}, and this VM is {vm.resource_id}",
            remedy="set NODE to the name of this VM's own node",
        )


def _is_same(provider: str, resource_id: str) -> bool:
    """Compare a providerID, which in Azure is `azure://` and the ARM id, with an ARM id, without
    regard to case.
    """
    return provider.casefold().removeprefix("azure://") == resource_id.casefold()
