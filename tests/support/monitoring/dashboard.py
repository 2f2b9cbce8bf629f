"""The dashboard as it is shipped."""

from __future__ import annotations

import json
from typing import Any

from support.monitoring.promtool import REPOSITORY

PATH = REPOSITORY / "helm" / "files" / "dashboard.json"


def dashboard() -> dict[str, Any]:
    """All of it."""
    loaded: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return loaded


def panels() -> list[dict[str, Any]]:
    """The panels that show something, in their order; rows are only headings."""
    return [each for each in dashboard()["panels"] if each["type"] != "row"]


def queries() -> dict[str, str]:
    """Every query by the title of its panel and its letter."""
    return {
        f"{panel['title']}, {target['refId']}": target["expr"]
        for panel in panels()
        for target in panel["targets"]
    }
