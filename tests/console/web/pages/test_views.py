"""Every page in every size and theme: nothing is wider than its window, nothing is hidden."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from playwright.sync_api import Browser, expect
from support.console.decision_bench import made_key
from support.console.records import FakeVm
from support.console.stage import ConsoleStage, fleet_of_all_states
from support.page.browser import check_views, watched_page

from console.db.vms.vm_lists import WantedVms

VMS = 400


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleStage]:
    """A console with 400 VMs, some in every state, and twenty decisions that are due."""
    key, _ = made_key(tmp_path_factory.mktemp("keys"))
    with ConsoleStage(tmp_path_factory.mktemp("console"), KEY=str(key)) as made:
        known = len(fleet_of_all_states(made))
        vms = [
            FakeVm(name=f"web-{number}", site=("dublin", "zurich")[number % 2], scale_set="web")
            for number in range(VMS - known)
        ]
        silent = made.now - timedelta(minutes=25)
        made.put(*(vm.heartbeat(now=silent) for vm in vms[-12:]))
        made.put(*(vm.heartbeat(now=made.now) for vm in vms[:-12]))
        due = [
            vm.event(f"E-{number}", now=made.now, not_before=made.moment(600 + 60 * number))
            for number, vm in enumerate(vms[:20])
        ]
        made.put(*due)
        for vm in vms[:20]:
            made.takes_commands(vm)
        yield made


def _id_of(stage: ConsoleStage, name: str) -> str:
    with stage.state.snapshots.open() as snapshot:
        return next(
            each.vm.vm_id for each in snapshot.vm_lists.page_of_vms(WantedVms(q=name), limit=1)
        )


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("now", "/"),
        ("fleet", "/fleet"),
        ("map", "/fleet?view=map&by=scale_set"),
        ("event", "/events/E-COMING"),
        ("over", "/events/E-GONE"),
        ("vm", "/vms/{late-1}"),
        ("audit", "/audit"),
        ("history", "/history"),
        ("groups", "/groups"),
        ("decide", "/decide"),
        ("confirm", "/decide/confirm?event=E-0&event=E-1&event=E-2"),
        ("missing", "/events/none"),
    ],
)
def test_every_page_is_readable_for_everybody(
    full: ConsoleStage, browser: Browser, name: str, path: str
) -> None:
    """At 360 and 1,280 px, light and dark, no page overflows, and axe-core finds no fault."""
    if "{" in path:
        path = path.replace("{late-1}", _id_of(full, "late-1"))
    with watched_page(browser, full.url) as page:
        page.goto(full.url + path)
        expect(page.locator("#live")).to_have_attribute("data-state", "live")
        check_views(page, f"console-{name}", every=True)


def test_a_console_without_vms_says_what_to_do(stage: ConsoleStage, browser: Browser) -> None:
    """The first page of a new console says how to connect the first VM."""
    with watched_page(browser, stage.url) as page:
        page.goto(stage.url)
        expect(page.locator("h1")).to_have_text("No VM has reported yet")
        expect(page.locator(".answer")).to_contain_text("seb console enroll VMID")
        expect(page.locator("#live")).to_have_attribute("data-state", "live")
        check_views(page, "console-empty", every=True)
