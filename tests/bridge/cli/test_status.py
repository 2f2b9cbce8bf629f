"""The exit code of `seb status`: green means that everything works."""

import json
from typing import Any

import pytest
from click.testing import CliRunner
from support.page.status_samples import event, moment, sink, status

from bridge.api.http_client import Viewer
from bridge.cli.status import command


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({}, 0),
        ({"ready": False, "looking": False}, 1),
        ({"ready": False, "notReady": "the disk is full"}, 1),
        ({"approvalTrouble": "no command is accepted: the file is gone"}, 1),
        ({"sinks": [sink(state="failing", reason="no route")]}, 1),
        ({"sinks": [sink(backlog=2, oldestPendingAt=moment(-9))]}, 0),
        ({"sinks": [sink(backlog=2, oldestPendingAt=moment(-61))]}, 1),
        (
            {
                "sinks": [sink(prepares=True, backlog=2, oldestPendingAt=moment(-61))],
                "events": [event(preparation="preparing")],
            },
            0,
        ),
        ({"sinks": [sink(prepares=True, backlog=2, oldestPendingAt=moment(-61))]}, 1),
        (
            {
                "sinks": [sink(backlog=2, oldestPendingAt=moment(-61))],
                "events": [event(preparation="preparing")],
            },
            1,
        ),
        ({"sinks": [sink(state="idle", backlog=0, dead=0)]}, 0),
        ({"sinks": [sink(state="idle", backlog=1)]}, 1),
        ({"sinks": [sink(state="idle", backlog=0, dead=1, reason="it was refused")]}, 1),
        ({"sinks": [sink(state="idle", backlog=0, dead=0, reason="it was refused")]}, 0),
    ],
)
def test_green_means_working(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], code: int
) -> None:
    """The exit code is 0 only if IMDS answers, changes can be committed, rules and commands have
    effect, and no sink fails, holds its backlog or refused the last record.
    """
    monkeypatch.setattr(Viewer, "json", lambda *_: status(**changed))
    done = CliRunner().invoke(command, ["--json"])
    assert done.exit_code == code
    assert json.loads(done.stdout).items() >= changed.items()
