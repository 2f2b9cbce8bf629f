"""The dashboards as they are shipped."""

import json
from typing import Any

from support.monitoring.promtool import REPOSITORY

BRIDGE, CONSOLE = "dashboard.json", "console-dashboard.json"


def dashboard(name: str = BRIDGE) -> dict[str, Any]:
    """All of it."""
    path = REPOSITORY / "helm" / "files" / name
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def panels(name: str = BRIDGE) -> list[dict[str, Any]]:
    """The panels that show something, in their order; rows are only headings."""
    return [each for each in dashboard(name)["panels"] if each["type"] != "row"]


def queries(name: str = BRIDGE) -> dict[str, str]:
    """Every query by the title of its panel and its letter."""
    return {
        f"{panel['title']}, {target['refId']}": target["expr"]
        for panel in panels(name)
        for target in panel["targets"]
    }
