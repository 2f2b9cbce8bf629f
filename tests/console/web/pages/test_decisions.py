"""Decisions on an event's page, in a real browser: only what the person saw is signed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from support.console.decision_bench import audit, made_key
from support.console.records import FakeVm
from support.console.stage import ConsoleStage
from support.page.browser import check_views, watched_page

from console.config.load import load
from console.signing.key_file import KeyFileSigner
from sinks.shared.errors import ConfigurationError

ROLES = '{"viewer": ["user:vic"], "approver": ["user:ann", "user:bob"]}'
BAD = "<img src=x onerror='window.hit=1'><script>window.hit=1</script>\u202etxt\u0007"
SOME = '{"eventId":"E","fingerprint":"f"}'
SEEN = "<img src=x onerror='window.hit=1'><script>window.hit=1</script>\\u202etxt\\u0007"


def opened(directory: Path, **settings: str) -> ConsoleStage:
    """A console behind a proxy on this machine, with a key."""
    key, _ = made_key(directory / "keys")
    proxy = {"LOGIN__MODE": "proxy", "LOGIN__PROXIES": '["127.0.0.1"]', "ROLES": ROLES}
    return ConsoleStage(directory, **{"KEY": str(key), **proxy, **settings})


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ConsoleStage]:
    """A console where Ann and Bob may approve, and Vic may only look."""
    with opened(tmp_path) as made:
        made.http.headers["X-Forwarded-User"] = "ann"
        yield made


@pytest.fixture
def page(browser: Browser, stage: ConsoleStage) -> Iterator[Page]:
    """A page of Ann's."""
    with watched_page(browser, stage.url) as made:
        log_in(made, "ann")
        yield made


def log_in(page: Page, name: str) -> None:
    """Log in as another person from now on."""
    page.set_extra_http_headers({"X-Forwarded-User": name})


def announced(
    stage: ConsoleStage, event_id: str = "E", *, names: int = 2, **event: Any
) -> list[FakeVm]:
    """Return an event that waits for a decision, and the VMs that it names."""
    vms = [FakeVm(name=f"web-{number}") for number in range(names)]
    fields = {"not_before": stage.moment(872), "event_type": "Freeze", **event}
    for vm in vms:
        named = fields.get("resources") or [each.name for each in vms]
        stage.put(vm.event(event_id, now=stage.now, **{**fields, "resources": named}))
        stage.takes_commands(vm)
    return vms


def approve(page: Page, reason: str = "window of tonight") -> None:
    """Fill in the form and press the button."""
    page.get_by_label("Reason").fill(reason)
    page.get_by_role("button", name="Approve now").click()


def test_four_lines_say_what_is_decided(stage: ConsoleStage, page: Page) -> None:
    """Four lines say what happens, to which VMs, until when, and what an approval does; readable in
    every size.
    """
    announced(stage, names=40)
    page.goto(f"{stage.url}/events/E")
    lines = page.locator(".lines dd")
    expect(lines).to_have_count(4)
    expect(lines.nth(0)).to_contain_text("Freeze: short pause.")
    expect(lines.nth(1).locator("li")).to_have_text([f"web-{number}" for number in range(40)])
    expect(lines.nth(2)).to_contain_text("02:29:00 UTC")
    expect(lines.nth(3)).to_contain_text("releases every VM that the event lists: all 40 of them")
    expect(page.get_by_role("button", name="Leave it until 02:29:00 UTC")).to_be_visible()
    expect(page.get_by_role("button", name="reject")).to_have_count(0)
    check_views(page, "console-decision", every=True)


def test_an_approval_goes_its_way_on_an_open_page(stage: ConsoleStage, page: Page) -> None:
    """An approval makes one row of the audit with name and reason, and each receipt appears without
    a reload.
    """
    first, _ = announced(stage)
    page.goto(f"{stage.url}/events/E")
    approve(page)
    expect(page.locator("#decision h2")).to_contain_text("Being approved")
    expect(page.locator("#decision")).to_contain_text("by ann")
    expect(page.locator("form.decide")).to_have_count(0)
    (row,) = audit(stage)
    assert (row["actor"], row["action"], row["reason"]) == ("ann", "approve", "window of tonight")
    asked = next(vm for vm in (first, *announced_names(stage)) if vm.vm_id == row["vmId"])
    for number, state in enumerate(("accepted", "posted", "confirmed")):
        when = stage.now + timedelta(seconds=number)
        fields = {"jti": row["jti"], "actor": "ann", "now": when}
        stage.put(asked.receipt("E", state, **fields))
        words = ("accepted by the VM", "given to Azure", "confirmed")[number]
        expect(page.locator(".steps .step-now, .steps .step-done").last).to_contain_text(words)
    expect(page.locator("#decision h2")).to_contain_text("Approved")
    check_views(page, "console-approved", every=True)


def announced_names(stage: ConsoleStage) -> list[FakeVm]:
    """Return the VMs of `announced`, with the sequences that their bridges have reached."""
    return [FakeVm(name=f"web-{number}", sequence=50) for number in range(2)]


def test_the_form_works_without_javascript(stage: ConsoleStage, browser: Browser) -> None:
    """Without JavaScript the form leads back to the page, which may be loaded again."""
    announced(stage)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    log_in(page, "ann")
    page.goto(f"{stage.url}/events/E")
    approve(page)
    expect(page.locator("#decision h2")).to_contain_text("Being approved")
    assert page.url.startswith(f"{stage.url}/events/E")
    page.reload()
    expect(page.locator("#decision h2")).to_contain_text("Being approved")
    assert len(audit(stage)) == 1
    context.close()


def test_an_event_that_has_changed_is_not_signed(stage: ConsoleStage, page: Page) -> None:
    """A changed event is not signed; the page shows the differences, and a new form."""
    vms = announced(stage)
    page.goto(f"{stage.url}/events/E")
    page.evaluate("stop()")
    later = stage.now + timedelta(seconds=1)
    stage.put(
        *(
            vm.event(
                "E",
                transition="updated",
                resources=["web-0", "web-1", "web-2"],
                event_type="Reboot",
                not_before=stage.moment(600),
                now=later,
            )
            for vm in vms
        )
    )
    approve(page)
    expect(page.locator("#problem")).to_contain_text("Nothing is signed and nothing is sent")
    cells = page.locator(".changes tbody tr > *")
    expect(cells).to_have_text(
        [
            *("Type", "Freeze", "Reboot"),
            *("Not before", "02:29:00 UTC", "02:24:28 UTC"),
            *("Named VMs", "web-0, web-1", "web-0, web-1, web-2"),
        ]
    )
    assert [row["action"] for row in audit(stage)] == ["refused"]
    expect(page.get_by_label("Reason")).to_have_value("window of tonight")
    check_views(page, "console-changed", every=True)
    page.get_by_role("button", name="Approve now").click()
    expect(page.locator("#decision h2")).to_contain_text("Being approved")
    assert [row["action"] for row in audit(stage)] == ["refused", "approve"]


def test_a_change_on_an_open_page_does_not_slip_into_the_form(
    stage: ConsoleStage, page: Page
) -> None:
    """An open page shows the new state of the event, and says that the form is for the old one."""
    vms = announced(stage)
    page.goto(f"{stage.url}/events/E")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.get_by_label("Reason").fill("as I saw it")
    later = stage.now + timedelta(seconds=1)
    changed = {"transition": "updated", "resources": ["web-0"], "event_type": "Freeze"}
    stage.put(*(vm.event("E", not_before=stage.moment(872), now=later, **changed) for vm in vms))
    expect(page.locator(".lines dd").nth(1)).to_contain_text("1 VM:")
    expect(page.locator("[data-changed]")).to_be_visible()
    expect(page.get_by_label("Reason")).to_have_value("as I saw it")
    page.get_by_role("button", name="Approve now").click()
    expect(page.locator(".changes tbody th")).to_have_text(["Named VMs"])
    assert [row["action"] for row in audit(stage)] == ["refused"]


def test_what_somebody_types_is_not_lost_when_the_event_is_over(
    stage: ConsoleStage, page: Page
) -> None:
    """When the event ends, the form keeps its text and says what has happened."""
    first, second = announced(stage)
    page.goto(f"{stage.url}/events/E")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.get_by_label("Reason").fill("half a sente")
    for seconds, vm in ((1, first), (2, second)):
        now = stage.now + timedelta(seconds=seconds)
        stage.put(vm.event("E", transition="ended", now=now))
    expect(page.locator("#decision-status")).to_contain_text("The event is over")
    expect(page.get_by_label("Reason")).to_be_focused()
    expect(page.get_by_label("Reason")).to_have_value("half a sente")
    expect(page.locator("[data-changed]")).to_be_visible()


def test_an_event_can_be_left_until_its_time(stage: ConsoleStage, page: Page) -> None:
    """An event is left with name and reason, and can still be approved."""
    announced(stage)
    page.goto(f"{stage.url}/events/E")
    page.get_by_label("Reason").fill("traffic is low then")
    page.get_by_role("button", name="Leave it").click()
    expect(page.locator("#decision")).to_contain_text("Left until its time by ann")
    expect(page.locator("#decision q")).to_have_text("traffic is low then")
    approve(page, "after all")
    expect(page.locator("#decision h2")).to_contain_text("Being approved")


def test_a_viewer_sees_no_form_but_why(stage: ConsoleStage, page: Page) -> None:
    """A viewer sees the reason in place of the form, on the event's page and on the list."""
    announced(stage)
    log_in(page, "vic")
    for path in ("/events/E", "/decide", "/decide/confirm"):
        page.goto(stage.url + path)
        expect(page.locator(".notice").last).to_contain_text("you do not have the role approver")
        expect(page.locator("form[method=post]")).to_have_count(0)
    expect(page.locator(".who")).to_contain_text("vic viewer")
    forged = stage.http.post(
        f"{stage.url}/events/E",
        data={"action": "approve", "reason": "x", "seen": '{"eventId":"E","fingerprint":"f"}'},
        headers={"X-Forwarded-User": "vic", "Sec-Fetch-Site": "same-origin"},
        timeout=10,
    )
    assert forged.status_code == 403
    assert [row["action"] for row in audit(stage)] == ["refused"]


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_another_sites_form_is_refused(stage: ConsoleStage, site: str) -> None:
    """A form of another site is refused before anything is read."""
    for path in ("/events/E", "/decide/confirm"):
        answer = stage.http.post(
            stage.url + path,
            data={"action": "approve", "reason": "x"},
            headers={"Sec-Fetch-Site": site},
            timeout=10,
        )
        assert answer.status_code == 403
    assert "approve" not in [row["action"] for row in audit(stage)]


def test_without_a_key_the_page_says_what_to_set(tmp_path: Path, browser: Browser) -> None:
    """Without a key the page names the setting, and an event can still be left."""
    with ConsoleStage(tmp_path) as stage, watched_page(browser, stage.url) as page:
        announced(stage)
        page.goto(f"{stage.url}/events/E")
        expect(page.locator("form .notice").last).to_contain_text("Set SEB_CONSOLE_KEY")
        expect(page.get_by_role("button", name="Approve now")).to_have_count(0)
        check_views(page, "console-no-key", every=True)
        page.get_by_label("Reason").fill("no key")
        page.get_by_role("button", name="Leave it").click()
        expect(page.locator("#decision")).to_contain_text("Left until its time")


def test_a_key_in_a_vault_is_a_key(tmp_path: Path) -> None:
    """With a key in a vault the pages have the form."""
    key, _ = made_key(tmp_path / "keys")
    with ConsoleStage(tmp_path) as stage:
        announced(stage)
        stage.state.decisions.signer = KeyFileSigner(key)
        for path in ("/events/E", "/decide/confirm?event=E"):
            assert 'value="approve"' in stage.page(path)


def test_four_eyes_show_who_was_first(tmp_path: Path, browser: Browser) -> None:
    """The first person is asked to wait, and the second one sees who was first and what the
    approval does.
    """
    with (
        opened(tmp_path, APPROVAL__FOUR_EYES="2") as stage,
        watched_page(browser, stage.url) as page,
    ):
        stage.http.headers["X-Forwarded-User"] = "ann"
        announced(stage)
        log_in(page, "ann")
        page.goto(f"{stage.url}/events/E")
        expect(page.locator(".lines")).to_contain_text("It needs two people")
        approve(page)
        expect(page.locator("#decision")).to_contain_text("First approval by ann")
        expect(page.locator("#decision")).to_contain_text("You were the first to approve")
        expect(page.locator("form.decide")).to_have_count(0)
        log_in(page, "bob")
        page.goto(f"{stage.url}/events/E")
        expect(page.locator(".lines")).to_contain_text("You are the second person")
        check_views(page, "console-second", every=True)
        approve(page, "I agree")
        expect(page.locator("#decision h2")).to_contain_text("Being approved")
        expect(page.locator("#decision")).to_contain_text("by ann, bob")
        assert [row["action"] for row in audit(stage)] == ["approve_first", "approve"]


def test_a_rejected_approval_says_why_and_can_be_repeated(stage: ConsoleStage, page: Page) -> None:
    """A rejected approval shows the VM's reason and a remedy, also to a screen reader, and can be
    repeated.
    """
    vms = announced(stage, names=1)
    page.goto(f"{stage.url}/events/E")
    approve(page)
    expect(page.locator("#decision h2")).to_contain_text("Being approved")
    row = audit(stage)[-1]
    fields = {"jti": row["jti"], "actor": "ann", "reason": "unknown_key"}
    stage.put(vms[0].receipt("E", "rejected", now=stage.now + timedelta(seconds=1), **fields))
    stage.now += timedelta(seconds=30)
    expect(page.locator(".bad")).to_contain_text("The VM does not know the key")
    expect(page.locator(".bad")).to_contain_text("seb console trust")
    expect(page.locator("#announcer")).to_contain_text("The VM does not know the key")
    expect(page.locator("#decision h2")).to_contain_text("Decision due")
    check_views(page, "console-rejected", every=True)


@pytest.mark.parametrize(
    ("actor", "words"),
    [("rule:patching", "the rule patching of the VM"), ("local:mia", "mia on the VM")],
)
def test_a_decision_elsewhere_shows_as_what_it_is(
    stage: ConsoleStage, page: Page, actor: str, words: str
) -> None:
    """An approval by a rule or on the VM is shown as such, without a form."""
    vms = announced(stage, names=1)
    stage.put(vms[0].receipt("E", "posted", actor=actor, now=stage.now))
    page.goto(f"{stage.url}/events/E")
    expect(page.locator("#decision")).to_contain_text(words)
    expect(page.locator("form.decide")).to_have_count(0)


def test_an_approval_has_the_time_of_its_receipt(stage: ConsoleStage, page: Page) -> None:
    """An approval has the time of its receipt, and not the time at which a late receipt came in;
    the API agrees.
    """
    (vm,) = announced(stage, names=1)
    stage.put(
        vm.receipt("E", "confirmed", now=stage.now - timedelta(minutes=11), actor="local:mia"),
        late=600,
    )
    page.goto(f"{stage.url}/events/E")
    expect(page.locator("#decision")).to_contain_text("02:03:28 UTC")
    expect(page.locator("#decision")).not_to_contain_text("02:13:28 UTC")
    found = stage.http.get(f"{stage.url}/api/v1/events/E", timeout=20).json()
    assert found["decision"]["at"] == "2026-03-02T02:03:28.000Z"


def test_somebody_is_on_it(stage: ConsoleStage, page: Page) -> None:
    """A person takes an event or a silent VM; everybody sees the name, and it ends by itself."""
    announced(stage, names=1)
    quiet = FakeVm(name="quiet")
    stage.put(quiet.heartbeat(now=stage.now - timedelta(minutes=11)))
    page.goto(f"{stage.url}/events/E")
    page.get_by_role("button", name="I am on it").click()
    expect(page.locator(".taken")).to_have_text("ann is on it until 03:14 UTC")
    expect(page.get_by_role("button", name="Give it back")).to_be_visible()
    page.goto(f"{stage.url}/vms/{quiet.vm_id}")
    page.get_by_role("button", name="I am on it").click()
    expect(page.locator(".taken")).to_contain_text("ann is on it")
    log_in(page, "bob")
    page.goto(stage.url)
    expect(page.locator(".events .event")).to_contain_text("ann is on it")
    expect(page.locator("#silent-title + ul")).to_contain_text("ann is on it")
    page.goto(f"{stage.url}/events/E")
    page.get_by_role("button", name="Take it over").click()
    expect(page.locator(".taken")).to_contain_text("bob is on it")
    url = f"{stage.url}/api/v1/events/E/take"
    vic = {"X-Forwarded-User": "vic"}
    assert stage.http.post(url, json={"minutes": 5}, headers=vic, timeout=20).status_code == 403
    given_back = stage.http.post(url, json={"minutes": 0}, timeout=20)
    assert (given_back.status_code, given_back.json()["takenBy"]) == (200, None)
    vm = f"{stage.url}/api/v1/vms/{quiet.vm_id}"
    assert stage.http.get(vm, timeout=20).json()["takenBy"] == "ann"
    stage.now += timedelta(hours=1, seconds=1)
    assert stage.http.get(vm, timeout=20).json()["takenBy"] is None
    assert stage.http.post(f"{vm}/take", json={"minutes": 2000}, timeout=20).status_code == 422


def test_siblings_stand_beside_the_button(browser: Browser, tmp_path: Path) -> None:
    """Beside the button are the VMs of the same group or scale set, or with the same tags, that are
    due, away or silent.
    """
    group = '[{"name": "data", "match": {"name": ["db-3", "cache-*"]}}]'
    with opened(tmp_path, GROUPS=group) as stage, watched_page(browser, stage.url) as page:
        stage.http.headers["X-Forwarded-User"] = "ann"
        log_in(page, "ann")
        _check_siblings(stage, page)


def _check_siblings(stage: ConsoleStage, page: Page) -> None:
    mate = FakeVm(name="cache-1", scale_set="cache")
    stage.put(mate.heartbeat(now=stage.now - timedelta(minutes=12)))
    stage.put(FakeVm(name="cache-2", scale_set="cache").heartbeat(now=stage.now))
    stage.put(FakeVm(name="db-9", scale_set="db").heartbeat(now=stage.now))
    quiet = FakeVm(name="db-7", scale_set="db")
    stage.put(quiet.heartbeat(now=stage.now - timedelta(minutes=11)))
    tagged = FakeVm(name="arbiter", group="other", tags={"role": "db"})
    stage.put(tagged.event("E-AWAY", transition="started", now=stage.now))
    for name, event_type in (("db-3", "Freeze"), ("db-5", "Freeze"), ("db-6", "Preempt")):
        vm = FakeVm(name=name, scale_set="db", tags={"role": "db"} if name == "db-3" else {})
        later = stage.moment(600)
        stage.put(vm.event(f"E-{name}", event_type=event_type, not_before=later, now=stage.now))
        stage.takes_commands(vm)
    page.goto(f"{stage.url}/events/E-db-3")
    rows = page.locator("form #siblings li")
    expect(rows).to_have_count(5)
    expect(rows.nth(0)).to_contain_text("arbiter away, its event has started")
    expect(rows.nth(0)).to_contain_text("same tags")
    expect(rows.nth(1)).to_contain_text("cache-1 silent, last heard 12 min ago")
    expect(rows.nth(1)).to_contain_text("same group data")
    expect(rows.nth(2)).to_contain_text("db-7 silent, last heard 11 min ago")
    expect(rows.nth(3)).to_contain_text("db-5 decision due")
    expect(rows.nth(3)).to_contain_text("same scale set db")
    expect(rows.nth(4)).to_contain_text("db-6 its eviction or deletion is announced")
    check_views(page, "console-siblings", every=True)
    page.goto(f"{stage.url}/events/E-AWAY")
    expect(page.locator("#siblings")).to_have_count(0)


def test_vms_of_one_resource_group_with_similar_names_are_siblings(
    browser: Browser, tmp_path: Path
) -> None:
    """VMs of a resource group whose names differ only in the number are siblings."""
    with opened(tmp_path) as stage, watched_page(browser, stage.url) as page:
        stage.http.headers["X-Forwarded-User"] = "ann"
        for name, group in (
            ("db-7", "data"),
            ("db-x8", "data"),
            ("dbx-9", "data"),
            ("db-9", "web"),
        ):
            vm = FakeVm(name=name, group=group)
            stage.put(vm.heartbeat(now=stage.now - timedelta(minutes=11)))
        stage.put(FakeVm(name="db-8", group="data").heartbeat(now=stage.now))
        for name in ("DB-3", "db-05"):
            vm = FakeVm(name=name, group="data")
            stage.put(vm.event(f"E-{name}", not_before=stage.moment(600), now=stage.now))
            stage.takes_commands(vm)
        log_in(page, "ann")
        page.goto(f"{stage.url}/events/E-DB-3")
        rows = page.locator("form #siblings li")
        expect(rows).to_have_count(2)
        expect(rows.nth(0)).to_contain_text("db-7 silent, last heard 11 min ago")
        expect(rows.nth(0)).to_contain_text("same resource group data, and a similar name")
        expect(rows.nth(1)).to_contain_text("db-05 decision due")
        page.goto(f"{stage.url}/decide/confirm?event=E-DB-3&event=E-db-05")
        beside = page.locator(".chosen > li .siblings")
        expect(beside.nth(0)).to_have_text(
            "Beside it: 2 VMs of the same kind are due, away or silent: "
            "db-7 silent, db-05 decision due and decided here too."
        )
        expect(beside.nth(1)).to_contain_text("db-7 silent, DB-3 decision due and decided here")
        check_views(page, "console-siblings-confirm", every=True)


def test_an_approval_names_a_change_where_that_is_asked_for(
    browser: Browser, tmp_path: Path
) -> None:
    """If a change number is required, the form shows its pattern; leaving an event needs none."""
    with (
        opened(tmp_path, APPROVAL__CHANGE_PATTERN="CHG[0-9]{4}") as stage,
        watched_page(browser, stage.url) as page,
    ):
        stage.http.headers["X-Forwarded-User"] = "ann"
        log_in(page, "ann")
        announced(stage)
        page.goto(f"{stage.url}/events/E")
        expect(page.locator("label[for=reason]")).to_contain_text("CHG[0-9]{4}")
        approve(page, "change of tonight")
        expect(page.get_by_role("alert").first).to_have_text(
            "The reason must hold the number of a change: CHG[0-9]{4}."
        )
        expect(page.get_by_label("Reason")).to_have_value("change of tonight")
        expect(page.get_by_label("Reason")).to_be_focused()
        page.goto(f"{stage.url}/decide/confirm?event=E")
        page.get_by_label("Reason").fill("tonight")
        page.get_by_role("button", name="Approve 1 event").click()
        expect(page.get_by_role("alert").first).to_contain_text("change: CHG[0-9]{4}.")
        expect(page.get_by_label("Reason")).to_have_value("tonight")
        expect(page.get_by_label("Reason")).to_be_focused()
        assert audit(stage) == []
        page.goto(f"{stage.url}/events/E")
        page.get_by_label("Reason").fill("low traffic")
        page.get_by_role("button", name="Leave it").click()
        expect(page.locator("#decision h2")).to_contain_text("Left until its time")
        approve(page, "CHG0042 of tonight")
        expect(page.locator("#decision h2")).to_contain_text("Being approved")
    with pytest.raises(ConfigurationError, match="not a regular expression"):
        load(environ={"SEB_CONSOLE_APPROVAL__CHANGE_PATTERN": "CHG["})


def test_reporters_that_differ_are_compared_field_by_field(stage: ConsoleStage, page: Page) -> None:
    """The page shows which fields reporters differ in, with both values; a VM that the event does
    not name changes nothing that is shown.
    """
    named = FakeVm(name="web-0")
    fields = {"resources": ["web-0"], "event_type": "Freeze", "not_before": stage.moment(872)}
    stage.put(named.event("E", now=stage.now, **fields))
    stage.takes_commands(named)
    others = [FakeVm(name=f"peer-{number}") for number in range(2)]
    other = fields | {"not_before": stage.moment(300), "description": "x"}
    stage.put(*(vm.event("E", now=stage.now, **other) for vm in others))
    page.goto(f"{stage.url}/events/E")
    rows = page.locator("#differing tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("Not before")
    expect(rows.nth(0).locator("td")).to_have_text(
        ["02:29:00 UTC", "02:19:28 UTC", "peer-0, peer-1"]
    )
    expect(rows.nth(1).locator("td").nth(1)).to_have_text("x")
    expect(page.locator(".answer-count")).to_contain_text("02:29:00 UTC")
    check_views(page, "console-differing", every=True)
    later = stage.now + timedelta(seconds=9)
    stage.put(others[1].event("E", transition="updated", now=later, **other | {"description": "y"}))
    expect(rows).to_have_count(3)
    expect(page.locator(".answer-count")).to_contain_text("02:29:00 UTC")


def test_a_row_says_how_far_its_approval_is(stage: ConsoleStage, page: Page) -> None:
    """A row says who asked for the approval, that it was rejected and repeated, and that it is not
    confirmed for long.
    """
    vms = {vm.vm_id: vm for vm in announced(stage)}
    page.goto(f"{stage.url}/events/E")
    approve(page)
    expect(page.locator("#decision h2")).to_contain_text("Being approved")
    page.goto(stage.url)
    row = page.locator(".events .event")
    expect(row).to_contain_text("1st try: sent, asked just now, waits ")
    page.goto(f"{stage.url}/events/E")
    expect(page.locator("#waits")).to_contain_text("waits for an answer until 02:14:36 UTC")
    expect(page.locator("#late")).to_have_count(0)
    page.goto(stage.url)
    (first,) = audit(stage)
    stage.put(
        vms[first["vmId"]].receipt(
            "E", "rejected", jti=first["jti"], reason="unknown_key", actor="ann", now=stage.now
        )
    )
    expect(row).to_contain_text("1st try by ann: rejected by the VM")
    expect(row).to_contain_text("The VM does not know the key that signed the command.")
    page.goto(f"{stage.url}/events/E")
    approve(page, "once more")
    expect(page.locator("#decision h2")).to_contain_text("Being approved")
    second = [row for row in audit(stage) if row["action"] == "approve"][-1]
    vm = vms[second["vmId"]]
    stage.put(vm.receipt("E", "posted", jti=second["jti"], actor="ann", now=stage.now))
    expect(page.locator("#late")).to_have_count(0)
    stage.now += timedelta(seconds=90)
    stage.put(vm.heartbeat(now=stage.now))
    page.goto(stage.url)
    expect(row).to_contain_text("2nd try: given to Azure 02:14:28 UTC")
    expect(row.locator(".late")).to_contain_text("Not confirmed for 1 min 30 s")
    page.goto(f"{stage.url}/events/E")
    expect(page.locator("#late")).to_contain_text("not confirmed for 1 min 30 s")
    expect(page.locator("#waits")).to_have_count(0)
    found = stage.http.get(f"{stage.url}/api/v1/events/E", timeout=20).json()["tries"]
    assert [(each["vmId"], each["state"], each["by"]) for each in found] == [
        (first["vmId"], "rejected", "ann"),
        (second["vmId"], "posted", "ann"),
    ]


def test_a_reason_is_required(stage: ConsoleStage, page: Page) -> None:
    """The browser and the server require a reason."""
    announced(stage)
    page.goto(f"{stage.url}/events/E")
    page.get_by_role("button", name="Approve now").click()
    expect(page.locator("#decision h2")).to_contain_text("Decision due")
    approve(page, "   ")
    expect(page.locator("#problem")).to_contain_text("Give a reason")
    assert audit(stage) == []


def test_the_keyboard_decides_only_on_purpose(stage: ConsoleStage, page: Page) -> None:
    """Enter in the reason is a new line, and the buttons come next in the order of focus."""
    announced(stage)
    page.goto(f"{stage.url}/events/E")
    page.get_by_label("Reason").focus()
    page.keyboard.type("line j")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Reason")).to_have_value("line j\n")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.value") == "approve"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.value") == "leave"
    assert audit(stage) == []
    page.keyboard.press("Enter")
    expect(page.locator("#decision q")).to_have_text("line j")


def test_texts_from_outside_stay_texts_in_decisions(stage: ConsoleStage, page: Page) -> None:
    """Markup in names, types, ids, actors and reasons is shown as text in lines, form, differences
    and audit.
    """
    vm = FakeVm(name=BAD)
    event = {"event_type": BAD, "resources": [BAD, "b"], "not_before": stage.moment(600)}
    stage.put(vm.event(BAD, now=stage.now, **event))
    stage.takes_commands(vm)
    page.goto(stage.url)
    page.locator(".answer-what a").click()
    for line in (0, 1):
        expect(page.locator(".lines dd").nth(line)).to_contain_text(SEEN)
    page.evaluate("stop()")
    stage.put(
        vm.event(
            BAD,
            transition="updated",
            now=stage.now + timedelta(seconds=1),
            **{**event, "resources": [BAD]},
        )
    )
    approve(page, "<b>reason</b>")
    expect(page.locator(".changes")).to_contain_text(SEEN)
    page.get_by_role("button", name="Approve now").click()
    expect(page.locator("#decision q")).to_have_text("<b>reason</b>")
    page.goto(f"{stage.url}/decide")
    page.goto(f"{stage.url}/audit")
    expect(page.locator("tbody tr").first).to_contain_text(SEEN)
    assert page.evaluate("window.hit") is None
    assert page.locator("main img, main script").count() == 0


FORMS: list[dict[str, Any]] = [
    {"data": b"action=approve", "headers": {"Content-Type": "text/plain"}},
    {"files": {"action": b"approve"}},
    {"json": {"action": "approve", "reason": "r"}},
    {"data": {"action": "reject", "reason": "r"}},
    {"data": {"action": ["approve", "leave"], "reason": "r"}},
    {"data": {"action": "approve", "reason": "r", "seen": '{"eventId":"E"}'}},
    {"data": {"action": "approve", "reason": "r", "seen": "x" * 5_000_000}},
    {"data": {"action": "approve", "reason": "a\u202eb", "seen": SOME}},
    {"data": {"action": "approve", "reason": "r", "seen": [SOME, SOME]}},
]


@pytest.mark.parametrize("path", ["/events/E", "/decide/confirm"])
def test_a_form_that_no_page_sends_decides_nothing(stage: ConsoleStage, path: str) -> None:
    """A form that no page sends is refused with the problem, and an address alone decides
    nothing.
    """
    announced(stage, names=1)
    for each in FORMS:
        headers = {"Sec-Fetch-Site": "same-origin", **each.get("headers", {})}
        sent = {name: value for name, value in each.items() if name != "headers"}
        answer = stage.http.post(stage.url + path, headers=headers, timeout=20, **sent)
        assert answer.status_code == 422, answer.text
        assert 'id="problem"' in answer.text
    query = {"action": "approve", "reason": "r", "seen": SOME}
    assert stage.http.get(stage.url + path, params=query, timeout=20).status_code == 400
    assert audit(stage) == []


def test_an_approval_that_was_not_asked_for_here_may_be_late_too(stage: ConsoleStage) -> None:
    """The page shows how long an approval takes that was given on the VM."""
    (vm,) = announced(stage, names=1)
    stage.put(vm.receipt("E", "posted", actor="local:mia", now=stage.now))
    stage.now += timedelta(seconds=90)
    stage.put(vm.heartbeat(now=stage.now))
    detail, front = (" ".join(stage.page(path).split()) for path in ("/events/E", "/"))
    assert "not confirmed for 1 min 30 s" in detail
    assert "Not confirmed for 1 min 30 s" in front
