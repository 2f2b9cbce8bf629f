"""Who may approve on this VM: the owner's rules and trusted keys, made from the settings."""

from __future__ import annotations

from bridge.approval.policy import Rule
from bridge.approval.trusted_keys import Trust, TrustError, read_trust
from bridge.config.approval import ApprovalSettings
from bridge.errors import ConfigurationError


def rules_of(approval: ApprovalSettings) -> list[Rule]:
    """The rules, in the order in which they decide."""
    return [
        Rule(
            name=each.name,
            event_type=each.event_type,
            event_source=each.event_source,
            max_duration=each.max_duration,
            affects_this_vm=each.affects_this_vm,
            max_resources=each.max_resources,
            after=each.after,
            leader_first=each.leader == "first",
            takeover=each.takeover,
        )
        for each in approval.rules
    ]


def trust_of(approval: ApprovalSettings) -> Trust:
    """The trusted keys.

    Raises `ConfigurationError` where the file cannot be trusted: it is refused at the start, not
    at the first command.
    """
    path = approval.trust
    try:
        if path is not None:
            read_trust(path)
    except OSError as error:
        problem = f"the file {path} cannot be read: {error.strerror}"
        raise ConfigurationError(f"SEB_APPROVAL__TRUST: {problem}") from None
    except TrustError as error:
        raise ConfigurationError(f"SEB_APPROVAL__TRUST: {error}") from None
    return Trust(path)
