"""`seb run`: the bridge itself."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import click

from bridge.cli import common
from bridge.config.approval import ApprovalSettings, CommandsSettings
from bridge.config.load import Configuration, sink_spec
from sinks.shared.errors import OK, UNREACHABLE, SebError


@click.command("run")
@click.option("--once", is_flag=True, help="Look once, deliver, and end: 0 delivered, 69 not.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the records instead of delivering them, and keep no state.",
)
@common.set_option
def command(once: bool, dry_run: bool, overrides: tuple[str, ...]) -> None:  # noqa: FBT001
    """Run the bridge until SIGTERM or Ctrl-C.

    It polls Scheduled Events, commits every change to disk and delivers it to every configured
    sink (standard output if none is configured).
    """
    config = common.read_configuration(overrides)
    with tempfile.TemporaryDirectory() if dry_run else nullcontext() as scratch:
        code = _work(_dry(config, Path(scratch)) if scratch else config, once=once)
    common.exit_with(code)


def _work(config: Configuration, *, once: bool) -> int:
    # One poll has nothing to finish, and what is committed is safe: a signal ends it at once.
    stop = common.interruption() if once else common.stop_event()
    from bridge.approval.trusted_keys import trust_of  # noqa: PLC0415  # `seb run --help` needs none
    from bridge.service.bridge import Bridge, RunEnd  # noqa: PLC0415  # of it

    redact = common.start_log(config)
    try:
        # Only at the start: if the trust file becomes invalid later, commands are not verified, but
        # the process does not end, even when a run begins again.
        trust_of(config.settings.approval)
        if once:
            return OK if Bridge(config, stop=stop, redact=redact).run_once() else UNREACHABLE
        # A run may end and the next one begin. Only a signal sets `stop`, and nothing clears it.
        while not stop.is_set():
            if Bridge(config, stop=stop, redact=redact).run() is RunEnd.STOPPED:
                break
    except SebError as error:
        common.complain(error)
        return error.exit_code
    return OK


def _dry(config: Configuration, scratch: Path) -> Configuration:
    """Return the same configuration with standard output as its only sink and a temporary store; it
    approves nothing.
    """
    silent = {"approval": ApprovalSettings(), "commands": CommandsSettings()}
    settings = config.settings.model_copy(update={"state_dir": scratch, **silent})
    return replace(config, settings=settings, sinks=(sink_spec("stdout", {}),))
