"""`seb status`: the state of the running bridge."""

from __future__ import annotations

import json
from datetime import datetime
from http import HTTPStatus
from typing import Any

import click

from bridge.api.http_client import Viewer
from bridge.cli import common
from bridge.cli.sink_table import ago, holds_backlog, refuses, sink_table
from sinks.readable_line import compact_span
from sinks.shared.errors import NO
from sinks.shared.text import escaped
from wire.event import is_news


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object; its fields are stable.")
@click.option("--alive", is_flag=True, help="Print nothing; ask only whether the poll loop lives.")
@common.set_option
def command(*, as_json: bool, alive: bool, overrides: tuple[str, ...]) -> None:
    """Show the state of the running bridge.

    Exit codes: 0 it polls IMDS and commits changes with success, and no sink is in trouble; 1 it
    does not, or a sink fails, is paused, does not deliver or has refused the last record, or rules
    or commands have no effect; 69 no bridge answers.
    With --alive: 0 its poll loop lives, 1 it hangs; that is for a container's health check.
    """
    viewer = Viewer(common.read_configuration(overrides).settings.http.listen)
    if alive:
        status, _ = viewer.get("/healthz")
        raise click.exceptions.Exit(0 if status == HTTPStatus.OK else NO)
    answer = viewer.json("/api/v1/status")
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    else:
        for line in _lines(answer):
            click.echo(escaped(line))
    raise click.exceptions.Exit(0 if _works(answer) else NO)


def _works(answer: dict[str, Any]) -> bool:
    """Check whether the bridge polls IMDS and commits changes with success, delivers to every sink,
    and may approve.
    """
    if not answer["ready"] or answer["approvalTrouble"] is not None:
        return False
    if any(map(_has_trouble, answer["sinks"])):
        return False
    now = datetime.fromisoformat(answer["now"])
    is_preparing = any(event["preparation"] == "preparing" for event in answer["events"])
    # The sink that prepares this VM may take as long as its timeout; no other sink may.
    return not any(
        holds_backlog(sink, now)
        for sink in answer["sinks"]
        if not (sink.get("prepares") and is_preparing)
    )


def _has_trouble(sink: dict[str, Any]) -> bool:
    """Check whether a sink's records wait longer than usual, or whether it refused the last one."""
    fails = sink["state"] in ("failing", "paused")
    # A sink that is starting or idle has acknowledged nothing yet, so its records may wait.
    waits = sink["state"] != "ok" and bool(sink["backlog"])
    return fails or waits or refuses(sink)


def _lines(answer: dict[str, Any]) -> list[str]:
    now = datetime.fromisoformat(answer["now"])
    lines = [_who(answer["vm"]), _looking(answer, now)]
    if not answer["healthy"]:
        lines.append("the poll loop hangs: restart the bridge")
    if answer["store"]["trouble"]:
        lines.append(f"the store cannot be written: {answer['store']['trouble']}")
    if answer["approvalTrouble"]:
        lines.append(answer["approvalTrouble"])
    lines += ["", *_events(answer["events"], now)] if answer["vm"] else []
    return [*lines, "", *sink_table(answer["sinks"], now)]


def _who(vm: dict[str, Any] | None) -> str:
    if vm is None:
        return "starting: waiting for the VM identity from IMDS"
    details = (vm["vmSize"], vm["location"], vm["zone"] and f"zone {vm['zone']}", vm["scaleSet"])
    return f"{vm['name']}  {', '.join(filter(None, details))}  ({vm['vmId']})"


def _looking(answer: dict[str, Any], now: datetime) -> str:
    imds = answer["imds"]
    last = f"IMDS answered {ago(imds['lastSuccessAt'], now)}"
    if answer["looking"]:
        return f"looking; {last}"
    trouble = imds["trouble"]
    return f"NOT LOOKING; {last}" + (f": {trouble['message']}" if trouble else "")


def _events(events: list[dict[str, Any]], now: datetime) -> list[str]:
    if not events:
        return ["no event is pending"]
    lines = [f"{'EVENT':<36}  {'TYPE':<9}  {'STATUS':<9}  {'NOT BEFORE':<20}  {'IN':<8}  AFFECTS"]
    for event in events:
        moment = event["notBefore"]
        left = int((datetime.fromisoformat(moment) - now).total_seconds()) if moment else None
        if left is None or is_news(event["eventStatus"]):
            due = ""
        else:
            due = compact_span(left) if left > 0 else "now"
        others = len(event["resources"]) - event["affectsThisVm"]
        affects = " and ".join(
            filter(
                None,
                (
                    event["affectsThisVm"] and "this VM",
                    others and f"{others} other{'s' if others > 1 else ''}",
                ),
            )
        )
        lines.append(
            f"{event['eventId']:<36}  {event['eventType'] or '?':<9}  {event['eventStatus']:<9}  "
            f"{moment or '-':<20}  {due or '-':<8}  {affects or 'no VM named'}"
            f"{_preparation(event)}"
        )
    return lines


def _preparation(event: dict[str, Any]) -> str:
    """Return the state of this VM's preparation for a coming event; empty if it prepares
    nothing.
    """
    words = {"none": "not prepared", "preparing": "preparing", "failed": "preparation failed"}
    state = event.get("preparation")
    if state is None or event["eventStatus"] == "Started":
        return ""
    return f", {words.get(state, state)}"
