"""The real promtool, over rule files and over expressions that stand in none."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from support.patience import PATIENCE

_ANNOTATIONS = re.compile(r"Annotations:(\{.*\})")

REPOSITORY = Path(__file__).resolve().parents[3]
ALERTS = REPOSITORY / "helm" / "files" / "alerts.yaml"
CONSOLE_ALERTS = ALERTS.with_name("console-alerts.yaml")


def executable() -> str | None:
    """Where promtool is; None where the machine has none."""
    return shutil.which("promtool")


def promtool(*arguments: str) -> tuple[int, str]:
    """Run it: its exit code, and all that it said."""
    found = executable()
    if found is None:
        raise FileNotFoundError("promtool is not installed; Debian's package prometheus has it")
    done = subprocess.run(
        [found, *arguments],
        capture_output=True,
        check=False,
        text=True,
        timeout=PATIENCE,
    )
    return done.returncode, done.stdout + done.stderr


def check_expressions(expressions: Iterable[str], directory: Path) -> tuple[int, str]:
    """What it says of expressions, each as a rule of a file made for them."""
    rules = [{"record": f"checked:{n}", "expr": each} for n, each in enumerate(expressions)]
    path = directory / "expressions.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "checked", "rules": rules}]}))
    return promtool("check", "rules", str(path))


def alerts(path: Path = ALERTS) -> list[dict[str, Any]]:
    """The rules as they are shipped."""
    groups = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def fired(
    series: Mapping[str, str], names: Sequence[str], *, minute: int, directory: Path
) -> dict[str, str]:
    """The annotations, filled in, of each named alert that fires at that minute.

    promtool prints alerts only where they are not what a test expects, so this expects none.
    """
    test = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": k, "values": v} for k, v in series.items()],
                "alert_rule_test": [
                    {"alertname": name, "eval_time": f"{minute}m", "exp_alerts": []}
                    for name in names
                ],
            }
        ],
    }
    path = directory / "fired.json"
    path.write_text(json.dumps(test))
    _, said = promtool("test", "rules", str(path))
    parts = said.split("alertname: ")[1:]
    return {part.split(",", 1)[0]: " ".join(_ANNOTATIONS.findall(part)) for part in parts}
