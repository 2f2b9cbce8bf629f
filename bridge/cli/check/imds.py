"""IMDS: whether it gives a document, and who it says that this VM is. It asks no other address than
the settings name.
"""

from __future__ import annotations

import json

from bridge.document import DocumentError, parse_document
from bridge.endpoint import client
from bridge.identity import IdentityError, fetch_identity
from bridge.imds import ImdsError
from bridge.settings import DEFAULT_IMDS_URL, Settings
from sinks.base import Check
from sinks.record import VmIdentity


def look_at_imds(settings: Settings) -> Check:
    """Whether it gives a document, and how soon."""
    imds = client(settings)
    try:
        answer = imds.events()
        document = parse_document(answer.body)
    except (ImdsError, DocumentError) as error:
        return _failed(settings, error)
    finally:
        imds.close()
    return Check(
        level="ok",
        text=(
            f"{imds.url} answers in {answer.latency_ms:.0f} ms with api-version "
            f"{imds.api_version}; {_pending(len(document.events))}"
        ),
    )


def _pending(count: int) -> str:
    return {0: "no event is pending", 1: "1 event is pending"}.get(
        count, f"{count} events are pending"
    )


def _failed(settings: Settings, error: Exception) -> Check:
    remedy = (
        "the first request ever can take two minutes; then see that this is an Azure VM, that no "
        "firewall or network policy blocks 169.254.169.254, and for a pod that it may reach IMDS "
        "(hostNetwork)"
        if settings.imds.url == DEFAULT_IMDS_URL
        else "see that SEB_IMDS__URL is right and that something answers there"
    )
    return Check(level="fail", text=str(error), remedy=remedy)


def look_at_identity(settings: Settings) -> tuple[VmIdentity | None, Check]:
    """Who IMDS says that this VM is; None where it does not."""
    try:
        vm = fetch_identity(client(settings), settings.identity.tags)
    except (ImdsError, IdentityError) as error:
        remedy = "see the line about imds; without an identity there are no records"
        return None, Check(level="fail", text=str(error), remedy=remedy)
    missing = [tag for tag in settings.identity.tags if tag not in vm.tags]
    where = f" in {vm.location}" if vm.location else ""
    text = f"this VM is {vm.name} ({vm.vm_id}){where}"
    if missing:
        return vm, Check(
            level="warn",
            text=f"{text}, without the tags {json.dumps(missing)}",
            remedy="add the tags to the VM, or take them out of SEB_IDENTITY__TAGS",
        )
    return vm, Check(level="ok", text=text)
