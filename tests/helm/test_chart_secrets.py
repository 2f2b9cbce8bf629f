"""Secrets come by reference: the chart takes none in plain, and never repeats one."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chart.chart import refused
from support.chart.schema import BY_REFERENCE
from support.chart.values import MAY_BE_PLAIN, SINK_VARIABLES, problems

SECRET = "hunter2-and-more"


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (kind, field)
        for kind, field, secret in SINK_VARIABLES
        if secret and field not in MAY_BE_PLAIN
    ],
)
def test_secrets_are_refused(kind: str, field: str) -> None:
    """Whatever the bridge holds for a secret cannot be given in plain, and the error says how."""
    value = {"X": SECRET} if field == "headers" else SECRET
    found = problems({"settings": {"sink": {"a": {"kind": kind, field: value}}}})
    assert found == [f"{BY_REFERENCE!r} was expected"]


@pytest.mark.parametrize(
    "field",
    [
        "password",
        "smtp_password",
        "api_key",
        "apikey",
        "token",
        "shared_secret",
        "connection_string",
    ],
)
def test_secrets_of_other_kinds_are_refused(field: str) -> None:
    """Of a kind that is not built in, the name of a field tells."""
    found = problems({"settings": {"sink": {"mail": {"kind": "email", field: SECRET}}}})
    assert found == [f"{BY_REFERENCE!r} was expected"]


@pytest.mark.parametrize(
    "url",
    [
        "https://user:hunter2-and-more@ops.example/hook",
        "https://logic.example/workflows/1?sig=hunter2-and-more",
        "https://hooks.slack.com/services/T0/B0/hunter2-and-more",
        "https://team.webhook.office.com/webhookb2/hunter2-and-more",
    ],
)
def test_addresses_that_are_secrets_are_refused(url: str, tmp_path: Path) -> None:
    """An address with a user, a query or a chat's hook is a secret; `helm` does not repeat it."""
    said = refused(tmp_path, {"settings": {"sink": {"webhook": {"url": url}}}})
    assert BY_REFERENCE in said
    assert SECRET not in said


def test_helm_does_not_repeat_a_secret(tmp_path: Path) -> None:
    """What helm says of a secret in the wrong place names the place and the remedy alone."""
    values = {
        "settings": {
            "sink": {
                "mqtt": {"host": "a", "password": SECRET},
                "eventhub": {"connection_string": SECRET},
                "ops": {"kind": "webhook", "secret": SECRET, "headers": {"Authorization": SECRET}},
                "mail": {"kind": "email", "smtp_password": SECRET},
            },
            "commands": {"pull_token": SECRET},
        }
    }
    said = refused(tmp_path, values)
    assert said.count(BY_REFERENCE) == 6
    assert SECRET not in said
