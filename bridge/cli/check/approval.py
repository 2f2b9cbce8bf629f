"""`seb check` about approval: rules as sentences, trusted issuers, and settings that can never have
an effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from bridge.approval.policy import covers, sentence
from bridge.approval.trusted_keys import trust_of
from bridge.config.approval import ApprovalSettings, Rule
from bridge.config.load import Configuration, SinkSpec
from bridge.events.gaps import slow_answers
from sinks.base import Check
from sinks.settings import PreparingSettings
from sinks.shared.errors import ConfigurationError
from sinks.shared.event_match import WORD_KEYS
from wire.event import AZURE_WORDS
from wire.record import EVENT_SCHEDULED, EVENT_UPDATED


def check_approval(config: Configuration) -> Iterator[Check]:
    """Yield the lines about rules, in their order, then about keys and channels."""
    rules = config.settings.approval.rules
    trust = config.settings.approval.trust
    channels = _channels(config)
    if not rules and trust is None and not channels:
        yield Check.ok("nothing is approved: no rule and no trusted key is configured")
        return
    for index, rule in enumerate(rules):
        yield _rule(rule, rules[:index], config.sinks)
    if trust is not None:
        yield _trust(config.settings.approval, trust)
    slow = slow_answers(config.settings.poll_interval, config.settings.imds.timeout)
    if slow is not None:
        yield Check.warn(slow, "IMDS answers within a second: find out why it takes longer")
    if channels and trust is None:
        yield Check.warn(
            f"commands are received over {' and '.join(channels)}, but all are refused",
            "set SEB_APPROVAL__TRUST; `seb keys generate` writes the keys",
        )
    if trust is not None and not channels:
        yield Check.warn(
            "keys are trusted, but no channel receives commands",
            "set SEB_SINK__MQTT__COMMANDS=true or SEB_COMMANDS__PULL_URL",
        )


def _rule(rule: Rule, before: Sequence[Rule], sinks: Sequence[SinkSpec]) -> Check:
    for problem, remedy in _problems(rule, before, sinks):
        return Check.warn(f"{sentence(rule)}; but {problem}", remedy)
    return Check.ok(sentence(rule))


def _problems(
    rule: Rule, before: Sequence[Rule], sinks: Sequence[SinkSpec]
) -> Iterator[tuple[str, str]]:
    for earlier in before:
        if covers(earlier, rule):
            yield (
                f"rule {earlier.name} comes first and decides about all of these events",
                f"move it before {earlier.name}, or remove it",
            )
    for key in WORD_KEYS:
        words: Sequence[str] = getattr(rule, key)
        known = AZURE_WORDS[key]
        strange = [each for each in words if each.casefold() not in map(str.casefold, known)]
        if strange:
            yield (
                f"no {key.replace('_', ' ')} {' or '.join(strange)} is known",
                f"Azure's words are {', '.join(known)}",
            )
    for spec in sinks:
        if spec.name in rule.after and not _gets_events(spec):
            yield (
                f"the sink {spec.name} does not get every record that the rule waits for",
                f"let its TYPES take {EVENT_SCHEDULED} and {EVENT_UPDATED}",
            )
    yield from _problems_of_preparing(rule, sinks)
    if rule.leader and rule.max_resources <= 1:
        yield (
            "leader has no effect with max_resources 1: an event of two VMs is refused",
            "raise max_resources, or leave out leader",
        )
    if rule.leader and not rule.affects_this_vm:
        yield (
            "a VM leads only where the event names it",
            "leave out affects_this_vm = false, or leader",
        )


def _problems_of_preparing(rule: Rule, sinks: Sequence[SinkSpec]) -> Iterator[tuple[str, str]]:
    for spec in filter(_prepares, sinks):
        if spec.name in rule.after and not rule.affects_this_vm:
            yield (
                f"the sink {spec.name} prepares this VM alone: events of others are not approved",
                "set PREPARES=false there, or leave out affects_this_vm = false",
            )
        if rule.leader:
            yield (
                "only the VM that leads prepares; the others that the event names do so at LEAD",
                "set PREPARES=false and name the sink in after, or leave out leader",
            )


def _prepares(spec: SinkSpec) -> bool:
    return isinstance(spec.settings, PreparingSettings) and spec.settings.prepares


def _gets_events(spec: SinkSpec) -> bool:
    types = spec.settings.types
    return (
        types is None
        or _prepares(spec)
        or all(
            any(fnmatchcase(record, glob) for glob in types)
            for record in (EVENT_SCHEDULED, EVENT_UPDATED)
        )
    )


def _trust(approval: ApprovalSettings, path: Path) -> Check:
    try:
        trust = trust_of(approval)
        keys = trust.keys()
    except ConfigurationError as error:
        remedy = "correct the file, or the setting; the bridge does not start before that"
        return Check.fail(str(error), remedy)
    if trust.trouble is not None:
        return Check.warn(trust.trouble, "until then no command is accepted")
    if not keys:
        remedy = "add a public key; `seb keys generate` writes one"
        return Check.warn(f"{path} holds no key, so no command is accepted", remedy)
    issuers = ", ".join(sorted({key.issuer for key in keys}))
    count = f"{len(keys)} key{'s' if len(keys) > 1 else ''}"
    return Check.ok(f"commands that {issuers} signed are accepted ({count} in {path})")


def _channels(config: Configuration) -> list[str]:
    listening = [s.name for s in config.sinks if getattr(s.settings, "commands", False)]
    return listening + (["HTTPS pull"] if config.settings.commands.pull_url is not None else [])
