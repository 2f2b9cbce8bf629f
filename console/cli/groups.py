"""`seb console groups`: shows who is away and who waits, and explains the groups before they are
used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from console.cli import common
from console.cli.client import ConsoleClient
from console.config.groups import GroupSettings
from console.db.connection.opening import existing_database
from console.db.snapshot import Snapshots
from console.db.turn_facts.past_events import read_past
from console.db.turn_facts.vm_facts import member_of
from console.db.vms.vm_lists import WantedVms
from console.fleet.contact import SilentTime
from console.fleet.moments import moment
from console.turns.away import AWAY_WORDS
from console.turns.explain import members, sentence
from console.turns.groups import Grouping, Member, groups_of, key_of
from console.turns.replay import ReplayOutcome, replay
from console.web.pages.formatting import span
from sinks.shared.errors import OK
from sinks.shared.text import plain

_MAX_VMS: Final = 100_000


@click.group("groups", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="As JSON; its fields are those of the API.")
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> int:
    """Show the groups of SEB_CONSOLE_GROUPS: who is away in each, and which events wait.

    It asks the console at SEB_CONSOLE_URL. Exit code 69: no console answers.
    """
    if context.invoked_subcommand is not None:
        return OK
    items = ConsoleClient().get("groups")["items"]
    if as_json:
        for each in items:
            click.echo(json.dumps(each, ensure_ascii=False))
        return OK
    for each in items:
        for line in _group_lines(each):
            click.echo(plain(line))
    if not items:
        click.echo("no groups; see SEB_CONSOLE_GROUPS", err=True)
    return OK


def _group_lines(group: Mapping[str, Any]) -> Iterator[str]:
    away = len(group["away"])
    most = group["atMost"]
    count = group["members"]
    yield f"{group['key']}: {away} of {count} away, at most {most} may be"
    for each in group["away"]:
        about = f" for {each['eventId']}" if each["eventId"] else ""
        yield f"  away   {each['name']} ({AWAY_WORDS[each['why']]}{about}) since {each['since']}"
    for each in group["waiting"]:
        yield f"  waits  {each['eventId']}: {each['reason']}"


@command.command("check")
@common.set_option
def check(overrides: tuple[str, ...]) -> int:
    """Explain each group in a sentence, with its members today.

    It reads the database of the settings, with or without a running console. Exit codes: 0 fine, 78
    a group is wrong.
    """
    settings = common.read_settings(overrides)
    if not settings.groups:
        click.echo("no group is set; see SEB_CONSOLE_GROUPS and SEB_CONSOLE_GROUPS_FILE")
        return OK
    database = existing_database(settings)
    try:
        snapshots = Snapshots(database, silent_time=SilentTime(seconds=settings.silent_after))
        with snapshots.open() as snapshot:
            heard = snapshot.vm_lists.page_of_vms(WantedVms(), limit=_MAX_VMS)
    finally:
        database.close()
    fleet = [member_of(each.vm) for each in heard if each.contact != "retired"]
    for group in settings.groups:
        for line in _lines(group, fleet):
            click.echo(line)
    return OK


@command.command("replay")
@click.option("--days", type=click.IntRange(1, 3650), default=90, help="How far back; 90.")
@common.set_option
def replay_past(days: int, overrides: tuple[str, ...]) -> int:
    """Run the groups over the stored past: what they would have approved, and after which wait.

    It assumes that every VM was heard, that preparing takes no time, and that each event lasts as
    long as it did; VMs that are retired today are left out. It reads the database of the settings
    and changes nothing.
    """
    settings = common.read_settings(overrides)
    grouping = Grouping(settings.groups)
    if not settings.groups:
        click.echo("no group is set; see SEB_CONSOLE_GROUPS and SEB_CONSOLE_GROUPS_FILE")
        return OK
    database = existing_database(settings)
    try:
        snapshots = Snapshots(database, silent_time=SilentTime(seconds=settings.silent_after))
        with snapshots.open() as snapshot:
            groups, vms, past = read_past(
                snapshot,
                grouping,
                since=snapshot.now - days * 86_400,
                four_eyes=settings.approval.four_eyes,
            )
    finally:
        database.close()
    for line in _replay_lines(replay(groups, vms, past)):
        click.echo(plain(line))
    return OK


def _replay_lines(outcomes: Sequence[ReplayOutcome]) -> Iterator[str]:
    approved = [each for each in outcomes if each.approved_at is not None]
    waited = [each for each in approved if each.waited > 0]
    for each in outcomes:
        event_id = each.past.facts.event_id
        yield f"{_moment(each.past.announced_at)}  {event_id}  {_outcome_text(each)}"
    yield (
        f"The groups would have approved {len(approved)} of {len(outcomes)} events; "
        f"{len(waited)} of them would have waited"
        + (f", at most {span(max(each.waited for each in waited))}" if waited else "")
    )


def _outcome_text(outcome: ReplayOutcome) -> str:
    if outcome.approved_at is None:
        return f"not approved: {outcome.reason or 'it started at once'}"
    if not outcome.waited:
        return "approved at once"
    behind = ", ".join(sorted(key.event_id for key in outcome.waited_for))
    return f"approved after {span(outcome.waited)}, behind {behind}"


def _moment(at: float) -> str:
    return moment(at) or ""


def _lines(settings: GroupSettings, fleet: list[Member]) -> list[str]:
    found = groups_of([settings], fleet)
    lines = [sentence(settings)]
    for group in found.values():
        names = sorted(each.name for each in fleet if key_of(settings, each) == group.key)
        lines.append(f"  {members(group, names)}")
    return lines if found else [*lines, "  no VM of today belongs to it"]
