"""The shape of the dashboard: what Grafana would not say and a person would stumble over."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from support.monitoring import dashboard

DASHBOARD = dashboard.dashboard()
PANELS = {each["title"]: each for each in dashboard.panels()}
VARIABLES = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
both = pytest.mark.parametrize("name", [dashboard.BRIDGE, dashboard.CONSOLE])

# @grafana/schema 13: what a classic dashboard is written as today.
SCHEMA_VERSION = 42
COLUMNS = 24


def data_sources(part: Any) -> Iterator[Any]:
    """Every data source that is named anywhere within a part of the dashboard."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "datasource":
                yield value
            yield from data_sources(value)
    elif isinstance(part, list):
        for each in part:
            yield from data_sources(each)


def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
    """The cells of the grid that a panel covers."""
    place = panel["gridPos"]
    return {
        (x, y)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    }


def test_it_can_be_imported_anywhere() -> None:
    """It has a name and an address of its own, no id of a data base, and is of today's schema."""
    expected = ("scheduled-events-bridge", "Scheduled Events", None, SCHEMA_VERSION)

    assert expected == tuple(DASHBOARD[key] for key in ("uid", "title", "id", "schemaVersion"))
    assert dashboard.dashboard(dashboard.CONSOLE)["uid"] != DASHBOARD["uid"]


def test_no_data_source_is_fixed() -> None:
    """Every query asks the data source that the person chose."""
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    built_in = {"type": "grafana", "uid": "-- Grafana --"}

    assert [each for each in data_sources(DASHBOARD) if each not in (chosen, built_in)] == []


def test_the_variables_are_those_that_queries_use() -> None:
    """There is a choice of data source and one of VMs, which are named and chosen by instance."""
    assert list(VARIABLES) == ["datasource", "vm"]
    assert VARIABLES["datasource"]["type"] == "datasource"
    assert VARIABLES["vm"]["allValue"] == ".*"
    assert VARIABLES["vm"]["query"]["query"] == "query_result(seb_vm_info)"


@both
def test_the_panels_of_a_dashboard(name: str) -> None:
    """No two share an id, a title or a place in the grid; where a figure or a table stays empty, a
    person reads why, and never 'No data'.
    """
    panels = dashboard.dashboard(name)["panels"]
    outside = [p["title"] for p in panels if max(x for x, _ in cells(p)) >= COLUMNS]
    on_top = [(a["title"], b["title"]) for a, b in combinations(panels, 2) if cells(a) & cells(b)]

    assert (outside, on_top) == ([], [])
    assert len(panels) == len({each["id"] for each in panels})
    assert len(panels) == len({each["title"] for each in panels})
    for panel in dashboard.panels(name):
        assert panel["description"].endswith(".")
        assert panel["type"] == "timeseries" or panel["fieldConfig"]["defaults"]["noValue"]


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_speaks_for_itself(title: str) -> None:
    """A panel has a unit, and a letter for each query, which is about the chosen VMs; only those
    that are down are shown regardless.
    """
    panel, regardless = PANELS[title], {"Bridges that do not answer"}
    letters = [target["refId"] for target in panel["targets"]]
    asked = [target["expr"] for target in panel["targets"]]

    assert panel["fieldConfig"]["defaults"]["unit"]
    assert [chr(ord("A") + n) for n in range(len(letters))] == letters
    assert (title in regardless) != all('instance=~"$vm"' in each for each in asked)


def test_the_columns_of_tables_exist() -> None:
    """A column that is formatted or sorted by is one that the table has."""
    wrong = []
    for title, panel in PANELS.items():
        if panel["type"] != "table":
            continue
        organized = panel["transformations"][-1]["options"]
        columns = {
            shown
            for name, shown in organized["renameByName"].items()
            if not organized["excludeByName"].get(name)
        }
        used = {each["matcher"]["options"] for each in panel["fieldConfig"]["overrides"]}
        used |= {each["displayName"] for each in panel["options"]["sortBy"]}
        wrong += [(title, each) for each in used - columns]

    assert wrong == []
