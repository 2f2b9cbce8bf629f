"""`seb check` about IMDS: whether it gives a document and the VM identity."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from bridge.config.settings import DEFAULT_IMDS_URL, Settings
from bridge.imds.client import Imds, ImdsError, client
from bridge.imds.document import DocumentError, parse_document
from bridge.imds.identity import IdentityError, fetch_identity
from bridge.known_api_versions import EVENTS_API_VERSIONS, INSTANCE_API_VERSIONS
from sinks.base import Check
from wire.vm import VmIdentity

_NAMED: Final = 5
"""How many api-versions are named, the newest ones."""
_FORBIDDEN: Final = (
    "something answers and refuses this process: see the rules of the guest proxy agent (metadata "
    "security protocol), and for a pod those of the cluster for IMDS"
)
# The remedy depends on the reason: waiting does not help against a refusal.
_REMEDIES: Final = {
    "http_400": "correct SEB_IMDS__API_VERSION; see that no proxy strips the Metadata header",
    "http_401": _FORBIDDEN,
    "http_403": _FORBIDDEN,
    "http_404": "IMDS may be in an update: try again in two minutes; then see that this is an "
    "Azure VM",
    "http_410": "IMDS is in an update: try again in two minutes",
    "http_429": "other programs on this VM ask IMDS too often: it takes five requests a second",
}


def check_imds(settings: Settings) -> Iterator[Check]:
    """Yield the lines that say whether IMDS gives a document, how soon, and which newer
    api-versions it offers.
    """
    imds = client(settings)
    try:
        yield _document(imds)
        yield from _newer_versions(imds)
    except (ImdsError, DocumentError) as error:
        yield _failed(settings, error)
    finally:
        imds.close()


def _document(imds: Imds) -> Check:
    answer = imds.events()
    document = parse_document(answer.body)
    count = len(document.events)
    pending = {0: "no event is", 1: "1 event is"}.get(count, f"{count} events are")
    return Check.ok(
        f"{imds.url} answers in {answer.latency_ms:.0f} ms with api-version "
        f"{imds.api_version}; {pending} pending"
    )


def _newer_versions(imds: Imds) -> Iterator[Check]:
    """Yield a line for api-versions that this release does not know; no line if IMDS does not list
    any.
    """
    known = max(imds.api_version, *EVENTS_API_VERSIONS, *INSTANCE_API_VERSIONS)
    try:
        newer = [each for each in imds.versions() if each > known]
    except ImdsError:
        return
    if newer:
        named = ", ".join(newer[-_NAMED:])
        more = f" and {len(newer) - _NAMED} more" if len(newer) > _NAMED else ""
        yield Check.ok(
            f"IMDS offers newer api-versions ({named}{more}), whose events this release has not "
            "seen; SEB_IMDS__API_VERSION selects one"
        )


def _failed(settings: Settings, error: ImdsError | DocumentError) -> Check:
    reason = error.reason if isinstance(error, ImdsError) else "malformed"
    if reason in _REMEDIES:
        remedy = _REMEDIES[reason]
    elif reason.startswith("http_5"):
        remedy = "IMDS itself has a problem: try again in a minute; the bridge keeps polling"
    elif reason.startswith("http_") or reason in ("malformed", "too_large"):
        remedy = (
            "see that IMDS answers there, and not a proxy or a portal: SEB_IMDS__URL is "
            f"{settings.imds.url}"
        )
    elif settings.imds.url == DEFAULT_IMDS_URL:
        remedy = (
            "the first request ever can take two minutes; then see that this is an Azure VM, that "
            "no firewall or network policy blocks 169.254.169.254, and for a pod that it may reach "
            "IMDS (hostNetwork)"
        )
    else:
        remedy = "see that SEB_IMDS__URL is right and that something answers there"
    return Check.fail(str(error), remedy)


def check_identity(settings: Settings) -> tuple[VmIdentity | None, Check]:
    """Return the VM identity from IMDS, or None, with the line about it."""
    try:
        vm = fetch_identity(client(settings), settings.identity.tags)
    except (ImdsError, IdentityError) as error:
        remedy = "see the line about imds; without an identity there are no records"
        return None, Check.fail(str(error), remedy)
    missing = [tag for tag in settings.identity.tags if tag not in vm.tags]
    where = f" in {vm.location}" if vm.location else ""
    text = f"this VM is {vm.name} ({vm.vm_id}){where}"
    if missing:
        return vm, Check.warn(
            f"{text}, without the tags {json.dumps(missing)}",
            "add the tags to the VM, or take them out of SEB_IDENTITY__TAGS",
        )
    return vm, Check.ok(text)
