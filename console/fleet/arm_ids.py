"""ARM ids: what the id of a VM says of it."""

from __future__ import annotations


def is_resource_id(text: str) -> bool:
    """Check whether a text is the ARM id of a VM, or of an instance of a scale set."""
    parts = text.split("/")
    is_whole = text.isprintable() and len(parts) % 2 == 1 and all(parts[1:]) and not parts[0]
    kinds = {each.lower() for each in parts[1::2]}
    return is_whole and None not in subscription_and_group(text) and "virtualmachines" in kinds


def names_by_kind(resource_id: str | None) -> dict[str, str]:
    """Return the names in an ARM id, by their kinds in lower case."""
    parts = (resource_id or "").split("/")
    return {kind.lower(): name for kind, name in zip(parts[1::2], parts[2::2], strict=False)}


def subscription_and_group(resource_id: str | None) -> tuple[str | None, str | None]:
    """Return subscription and resource group of an ARM id."""
    parts = (resource_id or "").split("/")
    lower = [part.lower() for part in parts]
    if lower[1:2] == ["subscriptions"] and lower[3:4] == ["resourcegroups"] and len(parts) > 4:  # noqa: PLR2004
        return parts[2], parts[4]
    return None, None
