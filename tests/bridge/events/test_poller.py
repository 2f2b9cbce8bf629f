"""One poll after the other: what is committed, reported and kept."""

import json
import logging
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.documents.documents import (
    EVENT_ID,
    LATER,
    OTHER_ID,
    body,
    entry,
    started,
)
from support.imds.poller_bench import PollerBench, summary
from support.store_helpers import draft as store_draft

from bridge.events import tracked
from bridge.imds.client import ImdsError
from bridge.store import retention
from wire.record import EVENT_SCHEDULED
from wire.schema import schema

VALIDATOR = jsonschema.Draft202012Validator(schema())
DOWN = ImdsError("nobody listens", reason="refused")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[PollerBench]:
    """A bridge that has not polled yet."""
    made = PollerBench(tmp_path / "state")
    yield made
    made.close()


def test_a_record_says_which_documents_it_lies_between(bench: PollerBench) -> None:
    """A record has the incarnation of its document and of the one before, also across a restart;
    the numbers may go back.
    """
    bench.serve(body(incarnation=279))
    (first,) = bench.serve(body(entry(), incarnation=0))
    bench.serve(body(entry(), incarnation=5))
    bench.restart()
    (second,) = bench.serve(body(started(), incarnation=2))
    assert [record.data["document"] for record in (first, second)] == [
        {"incarnation": 0, "previousIncarnation": 279},
        {"incarnation": 2, "previousIncarnation": 5},
    ]


def test_nothing_is_current_from_an_answer_to_its_commit(bench: PollerBench) -> None:
    """While a newer document waits for its commit, which a slow disk may delay, what is known is
    not what IMDS says now. It is again after a document that is as before.
    """
    current: list[bool] = []
    bench.store.subscribe(lambda _: current.append(bench.current.is_current()))
    bench.serve(body(entry()))
    assert (current, bench.current.is_current()) == ([False], True)
    bench.serve(body(started()))
    assert (current, bench.current.is_current()) == ([False, False], True)
    bench.fails(b"no document")
    assert not bench.current.is_current()
    assert bench.serve(body(started())) == []
    assert bench.current.is_current()


def test_an_idle_poll_does_nothing(bench: PollerBench, caplog: pytest.LogCaptureFixture) -> None:
    """A poll without a change wakes no sink, writes no record and logs no line."""
    woken: list[bool] = []
    bench.store.subscribe(lambda _: woken.append(True))
    bench.serve(body(entry()))
    woken.clear()
    caplog.clear()
    caplog.set_level(logging.DEBUG)
    for _ in range(10):
        bench.serve(body(entry()))
    assert (woken, caplog.messages) == ([], [])


def test_who_gets_a_record_finds_its_event_pending(bench: PollerBench) -> None:
    """A sink gets a record only once its event is among the pending ones."""
    seen: list[list[str]] = []
    bench.store.subscribe(
        lambda _: seen.append([e.event.event_id for e in bench.current.pending()])
    )
    bench.serve(body(entry()))
    (pending,) = bench.current.pending()
    bench.serve(body())
    assert seen == [[pending.event.event_id], []]


def test_delivered_records_are_forgotten_while_imds_does_not_answer(
    bench: PollerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delivered receipts are deleted while IMDS does not answer, because commands still come in."""
    monkeypatch.setattr(retention, "KEEP_DELIVERED", 10)
    bench.serve(body())
    bench.store.commit([store_draft(number) for number in range(1, 300)])
    bench.fails(DOWN)
    ((left,),) = bench.store.read("SELECT count(*) FROM records")
    assert left < 100


def test_a_record_is_of_the_moment_of_the_answer(
    bench: PollerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record has the time of the answer: the wait for it, or a suspension, does not make the
    notice longer.
    """

    def late() -> bytes:
        bench.clock.advance(120.0)
        return body(entry())

    monkeypatch.setattr(bench.imds, "document", late)
    bench.imds.latency_ms = 1.0
    (record,) = bench.serve(b"", after=0.0)
    assert record.time == "2026-03-02T10:02:00.000Z"
    observed = {"noticeSeconds": 780.0, "latencyMs": 1.0}
    assert observed.items() <= record.data["observation"].items()


@pytest.mark.parametrize(
    "error",
    [
        DOWN,
        b"",
        b"<html>",
        b'{"error":"Bad request"}',
        b'{"Events":null}',
        b'{"Events":[],"x":NaN}',
        body(entry())[:-5],
        RuntimeError("a bug"),
    ],
    ids=str,
)
def test_a_bad_day_ends_nothing(bench: PollerBench, error: Exception | bytes) -> None:
    """Failed polls end no event, and what has changed meanwhile is recorded afterwards."""
    bench.serve(body(entry()))
    bench.fails(error)
    bench.fails(error)
    assert summary(bench.serve(body(started()))) == [("event.started", "Started")]


def test_trouble_is_logged_once_and_its_end_once(
    bench: PollerBench, caplog: pytest.LogCaptureFixture
) -> None:
    """Trouble with IMDS is logged once, and so is its end, however many polls it lasts; it is not
    reported as trouble of the store.
    """
    caplog.set_level(logging.INFO)
    bench.serve(body())
    for error in (DOWN, DOWN, b"<html>", b"<html>"):
        bench.fails(error)
        assert bench.current.store_trouble is None
    bench.serve(body())
    logged = [(getattr(each, "action", ""), getattr(each, "reason", "")) for each in caplog.records]
    assert logged == [("imds_trouble", "refused"), ("imds_trouble", "malformed"), ("imds_ok", "")]


def test_a_bug_is_logged_with_its_trace_once(
    bench: PollerBench, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug in a poll is logged once with its trace, and the next poll is made."""
    for _ in range(3):
        bench.fails(ZeroDivisionError("deep inside"))
    assert [bool(each.exc_info) for each in caplog.records] == [True, False]
    bench.serve(body())


def test_imds_is_left_in_peace_as_long_as_it_asks(bench: PollerBench) -> None:
    """No request is sent before IMDS's Retry-After has passed, by the monotonic clock."""
    bench.fails(ImdsError("too many", reason="http_429", retry_after=3.0))
    bench.clock.jump(3600.0)
    for _ in range(2):
        bench.clock.advance(1.0)
        assert not bench.poller.run()
    assert bench.imds.asked == 1
    bench.serve(body())
    assert bench.imds.asked == 2


def test_what_could_not_be_committed_is_found_again(bench: PollerBench) -> None:
    """A change that could not be committed is found again by the next poll."""
    bench.store.read("PRAGMA query_only=ON")
    bench.fails(body(entry()))
    bench.fails(body(entry()))
    bench.store.read("PRAGMA query_only=OFF")
    assert summary(bench.serve(body(entry()))) == [("event.scheduled", "Scheduled")]


def test_a_long_outage_is_told_before_what_it_hid(bench: PollerBench) -> None:
    """After a long outage a gap record comes first, and the end of an event that disappeared has an
    unknown status.
    """
    bench.serve(body(entry()))
    bench.fails(DOWN)
    gap, ended = bench.serve(body(), after=60.0)
    assert summary([gap, ended]) == [("bridge.gap", None), ("event.ended", "Unknown")]
    assert (gap.data["gap"]["seconds"], gap.data["gap"]["reason"]) == (61.0, "imds")
    assert ended.data["observation"]["gapSeconds"] == 61.0


def test_a_gap_because_of_the_store_says_so(
    bench: PollerBench, caplog: pytest.LogCaptureFixture
) -> None:
    """If changes could not be committed for a while, although IMDS answered, the gap's reason is
    the store, and so the log says at its end.
    """
    caplog.set_level(logging.INFO)
    bench.serve(body())
    bench.fails(DOWN)
    bench.store.read("PRAGMA query_only=ON")
    for _ in range(3):
        bench.fails(body(entry()), after=10.0)
    bench.store.read("PRAGMA query_only=OFF")
    (gap,) = bench.serve(body())
    assert (gap.data["gap"]["seconds"], gap.data["gap"]["reason"]) == (32.0, "store")
    actions = [getattr(each, "action", "") for each in caplog.records]
    assert actions == ["imds_trouble", "store_trouble", "bridge.gap", "store_ok"]
    bench.fails(DOWN)
    assert [each.data["gap"]["reason"] for each in bench.serve(body(), after=20.0)] == ["imds"]


def test_an_outage_is_told_once(bench: PollerBench) -> None:
    """An outage has one gap record, also if the document is the same after it."""
    bench.serve(body(entry()))
    assert summary(bench.serve(body(entry()), after=60.0)) == [("bridge.gap", None)]
    assert bench.serve(body(entry())) == []


def test_a_reboot_completes_an_event(bench: PollerBench) -> None:
    """If the boot id has changed since an event was announced, the event ends as Completed, and the
    time without a poll is its downtime.
    """
    bench.serve(body(entry(event_type="Reboot")))
    bench.restart(boot_id="boot-2")
    _, ended = bench.serve(body(), after=61.5)
    assert ended.data["event"]["eventStatus"] == "Completed"
    assert {"restarted": True, "downtimeSeconds": 61.5}.items() <= ended.data["observation"].items()


def test_a_reboot_is_remembered_until_the_event_ends(bench: PollerBench) -> None:
    """A reboot counts until its event ends, which Azure may keep for minutes, also over a restart
    of the bridge.
    """
    bench.serve(body(started(event_type="Reboot")))
    bench.restart(boot_id="boot-2")
    bench.serve(body(started(event_type="Reboot")), after=30.0)
    bench.restart(boot_id="boot-2")
    (ended,) = bench.serve(body(), after=5.0)
    assert {"restarted": True, "downtimeSeconds": 30.0}.items() <= ended.data["observation"].items()


def test_a_reboot_that_others_had_says_nothing_of_their_events(bench: PollerBench) -> None:
    """A reboot is measured for an event of other VMs too, but does not complete it."""
    bench.serve(body(entry(resources=["web_4"])))
    bench.restart(boot_id="boot-2")
    _, ended = bench.serve(body(), after=60.0)
    assert ended.data["event"]["eventStatus"] == "Unknown"
    assert ended.data["observation"]["restarted"]


def test_a_reboot_with_the_clock_behind_is_a_reboot(bench: PollerBench) -> None:
    """A reboot counts although the VM comes up with a clock that is a day behind."""
    bench.serve(body(entry()))
    bench.clock.jump(-86400.0)
    bench.restart(boot_id="boot-2")
    assert summary(bench.serve(body())) == [("event.ended", "Completed")]


def test_a_pause_is_measured_for_the_events_that_are_pending(bench: PollerBench) -> None:
    """A pause is stored with the pending events at the next poll, although the document is the
    same.
    """
    bench.serve(body(entry()))
    bench.current.gaps.note_standstill(4.25)
    bench.serve(body(entry()), after=5.25)
    bench.restart()
    (ended,) = bench.serve(body(), after=3.0)
    assert ended.data["event"]["eventStatus"] == "Completed"
    assert {"pauseSeconds": 4.25, "restarted": False}.items() <= ended.data["observation"].items()


def test_parts_that_cannot_be_read_are_logged_and_end_nothing(
    bench: PollerBench, caplog: pytest.LogCaptureFixture
) -> None:
    """An unreadable part of a document is logged and ends no event, and the rest is recorded."""
    bench.serve(body(entry()))
    assert summary(bench.serve(body(3, entry(OTHER_ID)))) == [("event.scheduled", "Scheduled")]
    assert "document_ignored" in [getattr(each, "action", "") for each in caplog.records]
    assert summary(bench.serve(body(entry(OTHER_ID)))) == [("event.ended", "Canceled")]


@pytest.mark.parametrize("jump", [0.0, -3600.0])
def test_what_vanishes_after_its_time_is_not_called_canceled(
    bench: PollerBench, jump: float
) -> None:
    """An event that disappears after its time, also by a clock that was set back, does not end as
    Canceled: a poll may have missed Started.
    """
    bench.serve(body(entry()))
    bench.clock.jump(jump)
    bench.clock.advance(900.0)
    bench.serve(body(entry()))
    bench.clock.advance(1.0)
    bench.serve(body(entry()))
    bench.clock.advance(1.0)
    assert summary(bench.serve(body())) == [("event.ended", "Unknown")]


def test_a_night_of_sleep_is_a_long_gap(bench: PollerBench) -> None:
    """A suspension of the machine is a gap with a record, and an event that disappeared in it does
    not end as Canceled.
    """
    bench.serve(body(entry(not_before="Tue, 03 Mar 2026 10:00:00 GMT")))
    bench.clock.suspend(8 * 3600)
    assert not bench.current.gaps.is_polling()
    gap, ended = bench.serve(body(), after=1.25)
    assert (gap.data["gap"]["seconds"], gap.data["gap"]["reason"]) == (28801.25, "pause")
    assert gap.data["gap"]["from"] == "2026-03-02T10:00:01.000Z"
    assert ended.data["event"]["eventStatus"] == "Unknown"
    assert ended.data["observation"]["gapSeconds"] == 28801.25
    assert ended.data["observation"]["pauseSeconds"] is None
    assert bench.serve(body()) == []


def test_urgent_is_what_is_near_and_names_this_vm(bench: PollerBench) -> None:
    """An event that names this VM is urgent if it has begun or is near, and never once it has
    ended.
    """
    bench.serve(body(entry(resources=["web_4"])))
    answers = [bench.current.urgent(3600.0)]
    for document in (body(entry()), body(started()), body()):
        bench.serve(document)
        answers += [
            bench.current.urgent(120.0),
            bench.current.urgent(3600.0),
        ]
    assert answers == [False, False, True, True, True, False, False]


def test_what_is_near_stays_near_when_the_clock_is_set_back(bench: PollerBench) -> None:
    """An event that is near stays urgent whatever the clock is set to."""
    bench.serve(body(entry()))
    bench.clock.jump(-3600.0)
    assert not bench.current.urgent(120.0)
    bench.clock.advance(780.0)
    assert bench.current.urgent(120.0)
    assert bench.current.time_of_key(EVENT_ID.casefold()) == bench.clock.now() + timedelta(hours=1)
    assert bench.current.time_of_key("another") is None


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        (["mine", "others", "others, later", ""], [True, True, False, True]),
        (["others", "others, later", ""], [False, False, False]),
        (["others", "mine", ""], [False, True, True]),
        (["mine", "others", "mine", "others", ""], [True, True, True, True, True]),
        (["mine", "others", "", "others", ""], [True, True, True, False, False]),
        (["mine", "started by others", ""], [True, True, True]),
    ],
)
@pytest.mark.parametrize("restarts", [False, True])
def test_an_event_that_stops_naming_this_vm_says_so_once(
    bench: PollerBench, documents: list[str], expected: list[bool], restarts: bool
) -> None:
    """A reader of this VM's events gets the record by which an event stops naming it, and the
    event's end, also over restarts, and nothing of an event that never named it.
    """
    says = {
        "mine": entry(resources=["web_3", "web_4"]),
        "others": entry(resources=["web_4"]),
        "others, later": entry(resources=["web_4"], not_before=LATER),
        "started by others": started() | {"Resources": ["web_4"]},
    }
    found = []
    for document in documents:
        found += bench.serve(body(*([says[document]] if document else [])))
        if restarts:
            bench.restart()
    events = [each for each in found if each.event_id]
    assert [each.concerns_this_vm for each in events] == expected
    assert all(VALIDATOR.is_valid(json.loads(each.body)) for each in events)


def test_a_recommendation_is_news_and_no_more(bench: PollerBench) -> None:
    """An event with the status Advisory keeps Azure's word; it is never due, and its end is not
    guessed.
    """
    news = entry(status="Advisory") | {"EventType": "SpotRebalanceRecommendation"}
    (record,) = bench.serve(body(news))
    assert record.type == EVENT_SCHEDULED
    assert record.data["event"]["eventStatus"] == "Advisory"
    assert record.data["impact"] == "none"
    assert not bench.current.urgent(3600.0)
    assert summary(bench.serve(body())) == [("event.ended", "Unknown")]


class TestScopeSelf:
    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[PollerBench]:
        """A bridge that records only what names its VM."""
        made = PollerBench(tmp_path / "state", scope_self=True)
        yield made
        made.close()

    def test_other_vms_events_are_not_recorded(self, bench: PollerBench) -> None:
        """With SEB_SCOPE=self nothing of an event of other VMs is recorded."""
        for document in (body(entry(resources=["web_33"])), body(started() | {"Resources": []})):
            assert bench.serve(document) == []
        assert bench.serve(body()) == []

    def test_an_event_that_leaves_this_vm_out_has_ended_for_it(self, bench: PollerBench) -> None:
        """An event that stops naming this VM ends, and one that begins to name it appears."""
        bench.serve(body(entry(resources=["web_3", "web_4"])))
        assert summary(bench.serve(body(entry(resources=["web_4"])))) == [
            ("event.ended", "Unknown")
        ]
        assert summary(bench.serve(body(entry()))) == [("event.scheduled", "Scheduled")]

    @pytest.mark.parametrize("last", [entry(), started()])
    def test_an_event_that_goes_on_without_this_vm(
        self, bench: PollerBench, last: dict[str, Any]
    ) -> None:
        """An event that continues without this VM ends with an unknown status; if it returns, that
        is a new appearance with an end of its own.
        """
        bench.serve(body(last))
        (ended,) = bench.serve(body(last | {"Resources": ["web_4"]}))
        (back,) = bench.serve(body(last))
        (over,) = bench.serve(body())
        assert [
            (each.data["event"]["eventStatus"], each.data["observation"]["goesOnWithoutThisVm"])
            for each in (ended, over)
        ] == [
            ("Unknown", True),
            ("Completed" if last["EventStatus"] == "Started" else "Canceled", False),
        ]
        assert back.data["revision"] == 3
        VALIDATOR.validate(json.loads(ended.body))

    def test_a_narrower_scope_ends_what_it_leaves_out(self, bench: PollerBench) -> None:
        """After SEB_SCOPE changes to self, a sink that had the event of another VM gets its end,
        and its return.
        """
        bench.scope_self = False
        bench.restart()
        bench.serve(body(entry(resources=["web_4"])))
        bench.scope_self = True
        bench.restart()
        (ended,) = bench.serve(body(entry(resources=["web_4"])))
        assert (ended.data["event"]["eventStatus"], ended.data["revision"]) == ("Unknown", 2)
        assert ended.data["observation"]["goesOnWithoutThisVm"]
        assert bench.current.pending() == []
        bench.scope_self = False
        bench.restart()
        (back,) = bench.serve(body(entry(resources=["web_4"])))
        assert (back.data["transition"], back.data["revision"]) == ("scheduled", 3)

    def test_a_narrower_scope_still_counts_on(self, bench: PollerBench) -> None:
        """An event that begins to name this VM continues its revisions, so that no id is used
        twice.
        """
        bench.scope_self = False
        bench.restart()
        bench.serve(body(entry(resources=["web_4"])))
        bench.scope_self = True
        bench.restart()
        (record,) = bench.serve(body(entry()))
        assert (record.data["transition"], record.data["revision"]) == ("updated", 2)


def test_what_is_remembered_of_ended_events_stays_small(
    bench: PollerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of ended events is limited, in memory and on disk."""
    monkeypatch.setattr(tracked, "KEEP_ENDED", 10)
    for number in range(30):
        bench.serve(body(entry(event_id=f"EVENT-{number}")))
    bench.serve(body())
    on_disk = {key for (key,) in bench.store.read("SELECT key FROM events")}
    assert set(bench.current.events) == on_disk
    assert on_disk == {f"event-{number}" for number in range(20, 30)}


def test_an_event_that_was_forgotten_counts_on_when_it_returns(bench: PollerBench) -> None:
    """A forgotten event that returns continues its revisions, in this run or a later one, so that
    no id is used twice.
    """
    here = [entry(event_id=f"EVENT-{number}") for number in range(tracked.KEEP_ENDED + 50)]
    ids = [record.id for record in (*bench.serve(body(*here)), *bench.serve(body()))]
    for _ in range(2):
        back = bench.serve(body(*here))
        assert {record.data["revision"] % 2 for record in back} == {1}
        ids += [record.id for record in (*back, *bench.serve(body()))]
        bench.restart()
    assert len(ids) == len(set(ids)) == 6 * len(here)


def test_a_change_after_the_store_was_put_back_has_an_id_of_its_own(
    bench: PollerBench, tmp_path: Path
) -> None:
    """If a store is put back to before a change, the next change has another id than that one, also
    if the incarnations have begun again meanwhile and the change reads the same.
    """
    longer = entry(duration=60)
    bench.serve(body(entry(), incarnation=1))
    bench.close()
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    bench.begin()
    (first,) = bench.serve(body(longer, incarnation=2))
    bench.serve(body(entry(), incarnation=3))
    bench.restart(lost=tmp_path / "copy")
    (other,) = bench.serve(body(longer, incarnation=2))
    assert (first.sequence, first.data["revision"]) == (other.sequence, other.data["revision"])
    assert other.id != first.id


def test_an_end_after_the_store_was_put_back_has_an_id_of_its_own(
    bench: PollerBench, tmp_path: Path
) -> None:
    """If an event ended, returned and ends again after the store was put back to before all that,
    no consumer takes the second end for the first.
    """
    bench.serve(body(entry(), incarnation=1))
    bench.close()
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    bench.begin()
    (first,) = bench.serve(body(incarnation=2))
    bench.serve(body(entry(), incarnation=3))
    bench.restart(lost=tmp_path / "copy")
    (second,) = bench.serve(body(incarnation=2))
    assert (first.data["transition"], second.data["transition"]) == ("ended", "ended")
    assert first.id != second.id


def test_a_start_with_a_wrong_clock_forgets_no_revision(bench: PollerBench) -> None:
    """An event that returns after a start with a clock thirty years ahead continues its
    revisions.
    """
    bench.serve(body(entry()))
    bench.serve(body())
    bench.clock.jump(30 * 365 * 86400)
    bench.restart()
    (record,) = [each for each in bench.serve(body(entry())) if each.event_id]
    assert (record.data["transition"], record.data["revision"]) == ("scheduled", 3)
