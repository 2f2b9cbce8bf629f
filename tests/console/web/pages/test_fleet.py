"""`/fleet`: filters in the URL, rows by keyboard, and a map of a large fleet."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from playwright.sync_api import Page, expect
from support.console.records import FakeVm
from support.console.stage import ConsoleStage, fleet_of_all_states

from console.db.vms.vm_lists import VmCell
from console.web.pages import fleet_map
from console.web.pages.fleet_page import address_of


def test_the_filters_stand_in_the_url(stage: ConsoleStage, page: Page) -> None:
    """Typing changes rows and address at once, and the address alone shows the same rows."""
    fleet_of_all_states(stage)
    page.goto(f"{stage.url}/fleet")
    expect(page.locator("tbody th")).to_have_count(10)
    page.locator("input[name=q]").fill("e-1")
    expect(page.locator("tbody th")).to_have_text(["alone-1", "late-1"])
    page.locator("select[name=site]").select_option("dublin")
    late = page.locator(".chips a", has_text="late")
    expect(late).to_have_attribute("href", re.compile("site=dublin"))  # the answer has come
    late.click()
    expect(page.locator("tbody th")).to_have_text(["late-1"])
    assert "q=e-1" in page.url
    assert "site=dublin" in page.url
    assert "contact=late" in page.url
    page.goto(page.url)
    expect(page.locator("tbody th")).to_have_text(["late-1"])
    expect(page.locator("input[name=q]")).to_have_value("e-1")
    expect(page.locator("main")).to_contain_text("1 of 10 VMs")


def test_vms_are_found_and_sorted_both_ways(stage: ConsoleStage, page: Page) -> None:
    """VMs are found by pattern and tag, with names before ids, and each column sorts both ways."""
    for number, name in enumerate(("db-1", "db-2", "web-a", "cafe")):
        vm = FakeVm(name=name, site=f"site-{9 - number}", tags={"role": name[:2]})
        vm.vm_id = f"0000000{number}-0000-4000-8000-00000000cafe" if name != "cafe" else vm.vm_id
        stage.put(vm.heartbeat(now=stage.now - timedelta(seconds=number)))
    names = page.locator("tbody th")
    for q, found in (
        ("db-*", ["db-1", "db-2"]),
        ("*-?", ["db-1", "db-2", "web-a"]),
        ("tag=role:we", ["web-a"]),
        ("cafe", ["cafe", "db-1", "db-2", "web-a"]),
    ):
        page.goto(f"{stage.url}/fleet?q={q}")
        expect(names).to_have_text(found)
    page.goto(f"{stage.url}/fleet?q=*-*")
    page.get_by_role("link", name="Site", exact=True).click()
    expect(names).to_have_text(["web-a", "db-2", "db-1"])
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Site")
    page.get_by_role("link", name="Site", exact=True).click()
    expect(names).to_have_text(["db-1", "db-2", "web-a"])
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Site")
    page.get_by_role("link", name="VM", exact=True).click()
    page.get_by_role("link", name="VM", exact=True).click()
    expect(names).to_have_text(["web-a", "db-2", "db-1"])


def test_rows_are_reached_by_j_and_k_and_opened_by_enter(stage: ConsoleStage, page: Page) -> None:
    """`j` and `k` move between rows, Enter opens one, a slash goes to the search, and typing there
    moves nothing.
    """
    stage.put(*(FakeVm(name=f"web-{n}").heartbeat(now=stage.now) for n in (1, 2, 10)))
    page.goto(f"{stage.url}/fleet")
    expect(page.locator("tbody th")).to_have_text(["web-1", "web-2", "web-10"])
    focused = "document.activeElement.textContent"
    for key, name in (("j", "web-1"), ("j", "web-2"), ("j", "web-10"), ("k", "web-2")):
        page.keyboard.press(key)
        assert page.evaluate(focused) == name
    page.keyboard.press("/")
    page.keyboard.type("j")
    expect(page.locator("input[name=q]")).to_have_value("j")
    expect(page.locator("tbody")).to_have_text("No VM matches.")
    page.locator("input[name=q]").fill("")
    page.locator("input[name=q]").blur()
    expect(page.locator("tbody th")).to_have_count(3)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("web-1")


def test_a_cell_that_needs_attention_is_a_link(stage: ConsoleStage, page: Page) -> None:
    """A cell that needs attention is a link with the VM's name and state, and the group's name
    leads to its table.
    """
    fleet_of_all_states(stage)
    lost = FakeVm(name="lost-1", site="oslo")
    then = stage.now - timedelta(minutes=16)
    stage.put(lost.event("E-LOST", transition="started", now=then))
    page.goto(f"{stage.url}/fleet?view=map")
    expect(page.locator("#group-oslo h2")).to_have_text("oslo 1 started, 1 silent, 1 VM")
    expect(page.locator("#group-oslo path")).to_have_count(2)
    expect(page.get_by_role("link", name="lost-1: started, silent")).to_have_count(1)
    cell = page.get_by_role("link", name="silent-1: silent")
    cell.focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("silent-1")
    page.goto(f"{stage.url}/fleet?view=map")
    page.get_by_role("link", name="dublin").click()
    expect(page.locator("tbody th")).to_have_text(["alone-1", "coming-1", "heard-1", "late-1"])


def _cells(count: int, contact: str) -> list[VmCell]:
    return [
        VmCell(
            vm_id=f"id-{number}",
            name=f"web-{number}",
            site=f"site-{number % 3}",
            location=None,
            zone=None,
            scale_set=None,
            contact=contact,
            condition="clear",
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("contact", ["heard", "silent"])
def test_the_map_draws_each_of_ten_thousand_vms_once(contact: str) -> None:
    """The map draws each of ten thousand VMs once, in less than half a megabyte."""
    groups = fleet_map.draw(_cells(10_000, contact), "site")
    drawn = [path for group in groups for path in group.paths.values()]
    assert sum(len(re.findall("M", path)) for path in drawn) == 10_000
    assert [group.count for group in groups] == [3334, 3333, 3333]
    assert sum(map(len, drawn)) < 700_000
    assert sum(len(group.links) for group in groups) == (0 if contact == "heard" else 400)


def test_every_state_has_a_shape_of_its_own() -> None:
    """The map distinguishes states by shape, not only by colour."""
    assert len(set(fleet_map.SHAPES.values())) == len(fleet_map.SHAPES) == 8


def test_an_address_survives_its_own_url() -> None:
    """A filter is kept in the URL as it is, and an invalid parameter has its default."""
    query = {"view": "x", "by": "x", "sort": "x", "page": "-1", "q": " a&b ", "scaleSet": "web"}
    address = address_of(query)
    assert address.filters == {"q": "a&b", "scaleSet": "web"}
    assert (address["view"], address["by"], address["sort"], address.page) == (
        "table",
        "site",
        "name",
        1,
    )
    assert address.url(page=2) == "/fleet?q=a%26b&scaleSet=web&page=2"
    assert address_of({}).url(page=1, view="table") == "/fleet"
