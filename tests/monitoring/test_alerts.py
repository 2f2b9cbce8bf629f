"""The alert rules: checked and tried by the real promtool, and each with what a person needs."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.monitoring import promtool

HERE = Path(__file__).parent
TESTS = {
    promtool.ALERTS: sorted(HERE.glob("alerts_*.yaml")),
    promtool.CONSOLE_ALERTS: [HERE / "console_alerts.yaml"],
}
PAGES = {
    promtool.ALERTS: "docs/monitoring.md",
    promtool.CONSOLE_ALERTS: "docs/console-monitoring.md",
}
ALERTS = [each["alert"] for each in promtool.alerts()]

# Series of one VM that make every alert fire; `_` stands for its job and instance.
WORST = {
    "up{_}": "0x60",
    "seb_looking{_}": "0x60",
    "seb_poll_last_success_timestamp_seconds{_}": "60x60",
    "seb_poll_last_attempt_timestamp_seconds{_}": "60x60",
    "seb_store_writable{_}": "0x60",
    "seb_clock_jumps_total{_}": "0+1x60",
    'seb_sink_up{_, sink="ops", kind="webhook"}': "0x60",
    'seb_sink_oldest_pending_timestamp_seconds{_, sink="ops", kind="webhook"}': "0x60",
    'seb_sink_dead_records{_, sink="ops", kind="webhook"}': "3x60",
    'seb_vm_info{_, vm_name="db-0", resource_group="data"}': "1x60",
    'seb_next_not_before_timestamp_seconds{_, affects_this_vm="true"}': "3000x60",
    'seb_pending_events{_, event_type="Freeze", event_status="Started", affects_this_vm="true"}': (
        "1x60"
    ),
    'seb_approvals_total{_, outcome="failed"}': "0+1x60",
    'seb_approvals_total{_, outcome="rejected"}': "0+1x60",
    'seb_commands_refused_total{_, reason="bad_signature"}': "0+1x60",
}


@pytest.mark.parametrize(
    "path", [each for some in TESTS.values() for each in some], ids=lambda path: path.stem
)
def test_the_rules_do_what_they_say(tool: None, path: Path) -> None:
    """Promtool's unit tests of the rules pass, which it has to find valid for that."""
    code, said = promtool.promtool("test", "rules", str(path))

    assert code == 0, said


@pytest.mark.parametrize(
    ("rules", "alert"),
    [
        pytest.param(path, each, id=each["alert"])
        for path in PAGES
        for each in promtool.alerts(path)
    ],
)
def test_each_alert_has_what_a_person_needs(rules: Path, alert: dict[str, Any]) -> None:
    """A severity, a summary, a description, and a runbook that exists; and its unit tests have a
    moment at which it fires, and one at which it does not.
    """
    name, page = alert["alert"], (promtool.REPOSITORY / PAGES[rules]).read_text(encoding="utf-8")
    moments = [
        each
        for path in TESTS[rules]
        for test in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]
        for each in test["promql_expr_test"]
    ]
    about = f'alertname="{name}"'
    fires = [each for each in moments if each["exp_samples"] and about in str(each)]
    silent = [
        each
        for each in moments
        if not each["exp_samples"] and (about in each["expr"] or "alertname" not in each["expr"])
    ]

    assert (bool(fires), bool(silent)) == (True, True)
    assert {"summary", "description", "runbook"} == set(alert["annotations"])
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert f"{PAGES[rules]}#{name.lower()}" == alert["annotations"]["runbook"]
    assert name in re.findall(r"^#+ (\w+)$", page, re.MULTILINE)


def test_each_text_is_filled_in(tool: None, tmp_path: Path) -> None:
    """What an alert says has no gap where a label or a value was meant to be."""
    series = {k.replace("{_", '{job="seb", instance="db-0"'): v for k, v in WORST.items()}
    texts = promtool.fired(series, ALERTS, minute=45, directory=tmp_path)
    bad = ("<no value>", "error expanding", "{{", "%!", '""', " .")

    assert sorted(ALERTS) == sorted(texts)
    assert {name: text for name, text in texts.items() if any(each in text for each in bad)} == {}


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        ("seb_poll_last_success_timestamp_seconds", "IMDS last gave a good document 44m 0s ago."),
        ("seb_anything_else", "IMDS has never given a document."),
    ],
)
def test_blindness_is_told_with_its_length(
    tool: None, series: str, expected: str, tmp_path: Path
) -> None:
    """Who does not look is told for how long, or that nobody ever looked."""
    made = {'seb_looking{instance="db-0"}': "0x60", f'{series}{{instance="db-0"}}': "60x60"}

    text = promtool.fired(made, ["SebNotPolling"], minute=45, directory=tmp_path)

    assert expected in text["SebNotPolling"]
