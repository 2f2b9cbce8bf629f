"""The first page: its headline, its lists, and whether the console itself is connected."""

from __future__ import annotations

import re
from datetime import timedelta

from playwright.sync_api import Browser, Page, expect
from support.console.records import FakeVm
from support.console.stage import ConsoleStage, fleet_of_all_states
from support.page.browser import check_views

from console.db.decisions.latest_groups import StartedGroups, write_latest_groups


def test_the_first_page_answers_the_five_questions(stage: ConsoleStage, page: Page) -> None:
    """The page says whether a decision is due, for which VMs, how much time is left and which VMs
    are silent, and lists started events last.
    """
    fleet_of_all_states(stage)
    page.goto(stage.url)
    expect(page.locator("h1")).to_have_text("1 decision is due")
    expect(page.locator(".answer-names")).to_have_text("coming-1, named-1, alone-1")
    expect(page.locator(".answer")).to_contain_text("3 VMs affected, seen by 3")
    expect(page.locator(".answer")).to_contain_text("1 event is under way and 1 VM is silent.")
    expect(page.locator(".answer .count time")).to_contain_text("14:")
    expect(page.locator(".answer-count")).to_contain_text("02:29:00 UTC")
    expect(page.locator(".events h4 a")).to_have_text(["Freeze of 3 VMs", "Reboot of running-1"])
    expect(page.locator("#silent-title + ul a")).to_have_text(["silent-1"])
    expect(page.locator("#troubles")).to_be_empty()
    assert page.title() == "1 decision is due · Scheduled events"


def test_each_state_of_contact_is_a_word_and_a_shape(stage: ConsoleStage, page: Page) -> None:
    """The counts name all six states of contact, each with its own shape."""
    fleet_of_all_states(stage)
    page.goto(stage.url)
    counts = page.locator(".counts li")
    expect(counts).to_have_text(
        ["6 heard", "1 late", "1 silent", "1 stopped", "0 learning", "1 retired"],
        use_inner_text=False,
    )
    shapes = page.locator(".counts use").evaluate_all(
        "uses => uses.map(each => document.querySelector(each.getAttribute('href')).innerHTML)"
    )
    assert len(set(shapes)) == 6


def test_a_started_console_learns_before_it_calls_anybody_silent(
    stage: ConsoleStage, page: Page
) -> None:
    """After a start, known VMs that were not heard are learning, and the page says so."""
    stage.put(FakeVm().heartbeat(now=stage.now - timedelta(hours=2)))
    stage.begin_to_listen(10)
    page.goto(stage.url)
    expect(page.locator("h1")).to_have_text(
        "Nothing is known to be coming; 1 of 1 VM not known yet"
    )


def test_the_headline_says_that_a_part_of_the_fleet_is_not_known(
    stage: ConsoleStage, page: Page
) -> None:
    """After an absence of the console the headline says how many VMs are not known yet."""
    stage.put(FakeVm(name="away").heartbeat(now=stage.now - timedelta(hours=2)))
    stage.begin_to_listen(10)
    here = FakeVm(name="here")
    stage.put(here.event("E", not_before=stage.moment(600), now=stage.now))
    stage.takes_commands(here)
    page.goto(stage.url)
    expect(page.locator("h1")).to_have_text("1 decision is due; 1 of 2 VMs not known yet")
    page.locator("#unknown a").click()
    expect(page.locator("tbody th")).to_have_text(["away"])


def test_a_source_that_is_away_is_a_red_bar(stage: ConsoleStage, page: Page) -> None:
    """A source that is not connected is a red bar with its name and problem."""
    stage.state.sources["web"].note_disconnected("connection refused by broker.example:8883")
    page.goto(stage.url)
    bar = page.locator("#troubles .alarm")
    expect(bar).to_contain_text("Source web (webhook) is not connected")
    expect(bar).to_contain_text("connection refused by broker.example:8883")


def test_outdated_groups_are_a_red_bar(stage: ConsoleStage, page: Page) -> None:
    """Once another console was started with other groups, this one says that nothing is due here,
    and why.
    """
    fleet_of_all_states(stage)
    page.goto(stage.url)
    expect(page.locator("h1")).to_have_text("1 decision is due")
    others = StartedGroups(hash="others", run_id="another", started_at=9e9)
    with stage.console.database.writing.begin() as connection:
        write_latest_groups(connection, others)
    page.goto(stage.url)
    expect(page.locator("#troubles .alarm")).to_contain_text("This one gives no turns")
    expect(page.locator("h1")).not_to_have_text("1 decision is due")


def test_a_database_that_fails_is_a_red_bar(stage: ConsoleStage, page: Page) -> None:
    """While the database can only be read, the page shows its content, and a red bar with the
    problem.
    """
    stage.put(FakeVm().event("E-HERE", now=stage.now))
    stage.console.writer.stop()  # what it does from time to time would say that all is well
    stage.state.writer.progress.note_failure("database: disk I/O error")
    page.goto(stage.url)
    expect(page.locator("#troubles")).to_contain_text("The database does not work")
    expect(page.locator("#troubles")).to_contain_text("disk I/O error")
    expect(page.locator(".events")).to_contain_text("web-1")


def test_a_time_that_has_come_says_that_it_may_start_any_second(
    stage: ConsoleStage, page: Page
) -> None:
    """A countdown ends with the words that the event may start, without a message from the
    server.
    """
    stage.put(FakeVm().event("E-SOON", not_before=stage.moment(3), now=stage.now))
    stage.let_time_pass()
    page.goto(stage.url)
    expect(page.locator(".answer .count")).to_have_text("may start any second")


def test_the_page_is_readable_without_javascript(stage: ConsoleStage, browser: Browser) -> None:
    """Without JavaScript countdown, names, counts and filters work as the server drew them."""
    fleet_of_all_states(stage)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(stage.url)
    expect(page.locator(".answer .count")).to_have_text("14:32")
    page.goto(f"{stage.url}/fleet")
    page.locator("input[name=q]").fill("late")
    page.locator(".filters button").click()
    expect(page.locator("tbody th")).to_have_text(["late-1"])
    assert "q=late" in page.url
    context.close()


def test_texts_from_outside_stay_texts(stage: ConsoleStage, page: Page) -> None:
    """Markup is shown as text, and invisible characters are written out."""
    bad = "<img src=x onerror='window.hit=1'><script>window.hit=1</script>\u202etxt.exe\u0007"
    seen = "<img src=x onerror='window.hit=1'><script>window.hit=1</script>\\u202etxt.exe\\u0007"
    vm = FakeVm(name=bad, site=bad, group=bad, scale_set=bad, version=bad)
    stage.put(vm.event(bad, description=bad, event_type=bad, now=stage.now, impact=bad))
    stage.state.sources["web"].note_disconnected(bad)
    for path, places in (
        ("/", (".answer-what", "#troubles", ".events h4")),
        ("/fleet", ("tbody th", "tbody")),
        ("/fleet?view=map&by=scale_set", (".group h2",)),
        (f"/vms/{vm.vm_id}", ("h1", ".facts", ".crumb")),
    ):
        page.goto(stage.url + path)
        for place in places:
            expect(page.locator(place).first).to_contain_text(seen)
        assert page.locator("main img, main script").count() == 0
    page.goto(stage.url)
    page.locator(".answer-what a").click()
    for place in ("h1", "blockquote", ".reporters", ".facts"):
        expect(page.locator(place).first).to_contain_text(seen)
    assert page.evaluate("window.hit") is None


def test_what_starts_soon_comes_first(stage: ConsoleStage, page: Page) -> None:
    """Decisions due within 15 minutes come first, then later ones; an eviction is for
    information.
    """
    for name, event_type, seconds in (
        ("soon", "Reboot", 600),
        ("later", "Redeploy", 7200),
        ("spot", "Preempt", 25),
    ):
        vm = FakeVm(name=name)
        fields = {"event_type": event_type, "not_before": stage.moment(seconds)}
        stage.put(vm.event(f"E-{name}", now=stage.now, **fields))
        stage.takes_commands(vm)
    page.goto(stage.url)
    expect(page.locator("h1")).to_have_text("2 decisions are due")
    overview = stage.http.get(f"{stage.url}/api/v1/overview", timeout=20).json()
    assert overview["decisionsDue"] == 2
    expect(page.locator(".answer-what")).to_have_text("Reboot of soon: restart")
    expect(page.locator(".answer")).to_contain_text("Besides, 1 eviction or deletion is announced.")
    expect(page.locator(".card h3")).to_have_text(
        [
            "Decision due: starts within 15 minutes 1",
            "Decision due: starts later 1",
            "For your information: evictions and deletions, which you need not approve 1",
        ]
    )
    expect(page.locator(".events h4 a")).to_have_text(
        ["Reboot of soon", "Redeploy of later", "Preempt of spot"]
    )
    expect(page.get_by_role("link", name="Decide several at once")).to_be_visible()
    page.goto(f"{stage.url}/events/E-spot")
    expect(page.locator("#note")).to_contain_text("You need not decide.")
    expect(page.locator("#decision h2")).to_contain_text("For your information")
    buttons = page.locator("#decide button")
    expect(buttons.first).to_contain_text("Leave it until")
    page.goto(f"{stage.url}/history?type=Preempt")
    expect(page.locator("#past tr td").last).to_have_text("For your information")


def test_rows_do_not_move_under_the_pointer(stage: ConsoleStage, page: Page) -> None:
    """While the pointer is on a list, new rows are only counted; they appear when it leaves."""
    first, second = FakeVm(name="first"), FakeVm(name="second")
    for vm, seconds in ((first, 600), (second, 700)):
        fields = {"not_before": stage.moment(seconds), "now": stage.now}
        stage.put(vm.event(f"E-{vm.name}", **fields))
    page.goto(stage.url)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    names = page.locator("#events h4 a")
    page.locator("#event-E-second").hover()
    stage.put(FakeVm(name="new").event("E-NEW", not_before=stage.moment(300), now=stage.now))
    later = stage.now + timedelta(seconds=1)
    stage.put(first.event("E-first", transition="ended", now=later))
    held = page.locator("[data-held=events]")
    expect(held).to_have_text("1 new event, 1 gone")
    expect(names).to_have_text(["Reboot of first", "Reboot of second"])
    expect(page.locator("#event-E-first")).to_have_class(re.compile("gone"))
    page.locator("h1").hover()
    expect(names).to_have_text(["Reboot of new", "Reboot of second"])
    expect(held).to_be_hidden()


def test_silent_vms_are_shown_by_what_they_share(stage: ConsoleStage, page: Page) -> None:
    """Silent VMs are grouped by a zone or site of which most are silent, and not by what the whole
    fleet shares.
    """
    for number in range(4):
        heard = FakeVm(name=f"heard-{number}", site="dublin")
        stage.put(heard.heartbeat(now=stage.now))
        quiet = FakeVm(name=f"quiet-{number}", site="zurich", zone="2" if number else "1")
        stage.put(quiet.heartbeat(now=stage.now - timedelta(minutes=20 if number else 0)))
    page.goto(stage.url)
    expect(page.locator(".causes li")).to_have_text(
        ["Zone 2 of westeurope: all 3 VMs", "Site zurich: 3 of 4 VMs"]
    )
    expect(page.locator(".answer")).to_contain_text("But 3 VMs are silent.")
    check_views(page, "console-causes", every=True)
    page.locator(".causes a").first.click()
    expect(page.locator("tbody th")).to_have_text(["quiet-1", "quiet-2", "quiet-3"])
    page.get_by_role("link", name="quiet-1").click()
    expect(page.locator("#silence")).to_contain_text("Zone 2 of westeurope: all 3 VMs are silent.")


def test_open_events_are_searched_on_the_first_page(stage: ConsoleStage, page: Page) -> None:
    """The search of the first page finds events by pattern, tag and name, is in the address, and
    keeps the headline.
    """
    for number in range(6):
        vm = FakeVm(name=f"db-{number}", tags={"role": "odd" if number % 2 else "even"})
        stage.put(vm.event(f"E-{number}", not_before=stage.moment(600 + number), now=stage.now))
    for name, role in (("db-9", "odd"), ("db-x", "even")):
        quiet = FakeVm(name=name, tags={"role": role})
        stage.put(quiet.heartbeat(now=stage.now - timedelta(minutes=20)))
    for name in ("db-1", "web-1"):
        vm = FakeVm(name=name, tags={"role": "odd"} if name == "db-1" else {})
        stage.put(vm.event(f"E-OVER-{name}", transition="ended", now=stage.now))
    page.goto(stage.url)
    expect(page.locator(".over li")).to_have_count(2)
    expect(page.locator("#silent a")).to_have_text(["db-9", "db-x"], use_inner_text=True)
    names = page.locator("#events h4 a")
    page.keyboard.press("/")
    page.keyboard.type("tag=role:odd")
    expect(names).to_have_text(["Reboot of db-1", "Reboot of db-3", "Reboot of db-5"])
    expect(page.locator("#events-title")).to_contain_text("3 of 6")
    expect(page.locator("#silent-title")).to_contain_text("1 of 2")
    expect(page.locator("#silent a")).to_have_text(["db-9"])
    expect(page.locator(".over li span").first).to_have_text("db-1")
    expect(page.locator(".over li")).to_have_count(1)
    expect(page.locator("h1")).to_have_text("6 events are scheduled")
    assert "q=tag%3Drole%3Aodd" in page.url
    page.locator("input[name=q]").fill("*-5")
    page.keyboard.press("Enter")
    expect(names).to_have_text(["Reboot of db-5"])
    expect(names.first).to_be_focused()
    page.locator("input[name=q]").fill("none")
    page.keyboard.press("Enter")
    expect(page.locator("#events")).to_have_text("No open event matches.")
    expect(page.locator("#silent-title").locator("..")).to_contain_text("No silent VM matches.")
    expect(page.get_by_role("link", name="the fleet")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("input[name=q]")).to_have_value("none")
