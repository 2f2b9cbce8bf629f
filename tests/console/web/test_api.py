"""The API's reading side, against a real console with a fleet of a few VMs."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually

from wire.moment import rfc3339


def later(minutes: float) -> str:
    """Return a notBefore so far from now."""
    return rfc3339(datetime.now(UTC) + timedelta(minutes=minutes))


def record_ids(timeline: list[dict[str, Any]]) -> list[str]:
    """Return the ids in a timeline."""
    return [item["id"] for item in timeline]


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """Two sites, one scale set of three that share an event, and an event that is over."""
    with ConsoleProcess(tmp_path_factory.mktemp("console")) as running:
        trio = [FakeVm(name=f"set_{n}", scale_set="set", site="north") for n in range(3)]
        names = [vm.name for vm in trio]
        same = later(10)
        for vm in trio:
            shared = vm.event("E-SHARED", resources=names, not_before=same)
            assert running.post(shared).status_code == 204
        south = FakeVm(name="South-1", site="south", version="2.0.0")
        sooner = south.event("E-SOONER", not_before=later(5), event_type="Freeze", impact="pause")
        past = [
            south.event("E-PAST", observation={"noticeSeconds": 600.0}),
            south.event("E-PAST", transition="started"),
            south.event("E-PAST", transition="ended", observation={"pauseSeconds": 4.5}),
        ]
        for record in [sooner, *past, south.receipt("E-PAST", "confirmed", rsn="CHG <1>")]:
            assert running.post(record).status_code == 204
        eventually(lambda: len(running.events()) == 2, what="two open events")
        yield running


def test_open_events_come_by_time_left(console: ConsoleProcess) -> None:
    """Open events come first, the one with the least time left before the others; ended events come
    after them.
    """
    items = console.get("events")["items"]
    assert [item["eventId"] for item in items] == ["E-SOONER", "E-SHARED", "E-PAST"]
    assert [item["eventId"] for item in console.get("events", state="over")["items"]] == ["E-PAST"]


def test_an_event_seen_by_three_is_one(console: ConsoleProcess) -> None:
    """An event with three reporters is one item, and its names have their VMs."""
    event = console.events()["E-SHARED"]
    assert event["seenBy"] == 3
    assert not event["differing"]
    expected = [FakeVm(name=f"set_{n}", scale_set="set").vm_id for n in range(3)]
    assert [each["vmId"] for each in event["resources"]] == expected


def test_pages_of_one_hold_everything_once(console: ConsoleProcess) -> None:
    """Following `next` with one item per page gives each item exactly once, in the same order."""
    for path in ("events", "vms"):
        whole = console.get(path)["items"]
        found: list[Any] = []
        following: str | None = ""
        while following is not None:
            page = console.get(path, limit=1, cursor=following)
            assert len(page["items"]) <= 1
            found += page["items"]
            following = page["next"]
        key = "eventId" if path == "events" else "vmId"
        assert [each[key] for each in found] == [each[key] for each in whole]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"q": "SHARED"}, ["E-SHARED"]),
        ({"q": "south-1"}, ["E-SOONER", "E-PAST"]),
        ({"q": "SET_1"}, ["E-SHARED"]),
        ({"q": "%"}, []),
        ({"site": "north"}, ["E-SHARED"]),
        ({"type": "freeze"}, ["E-SOONER"]),
        ({"site": "south", "state": "over"}, ["E-PAST"]),
    ],
)
def test_events_are_filtered(
    console: ConsoleProcess, params: dict[str, str], expected: list[str]
) -> None:
    """Each filter of the events works for open and ended ones, and characters of SQL have no
    meaning.
    """
    assert [item["eventId"] for item in console.get("events", **params)["items"]] == expected


def test_events_are_found_by_letters_beyond_ascii(tmp_path: Path) -> None:
    """Events are found by a site and a name with letters beyond ASCII, in any case."""
    with ConsoleProcess(tmp_path) as running:
        assert running.post(FakeVm(name="Straße-1", site="zürich").event("E")).status_code == 204
        for wanted in ({"site": "zürich"}, {"q": "STRASSE"}, {"q": "straße"}, {"q": "straß*"}):
            assert running.events(**wanted).keys() == {"E"}


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, ["set_0", "set_1", "set_2", "South-1"]),
        ({"q": "SOUTH"}, ["South-1"]),
        ({"site": "north", "condition": "scheduled"}, ["set_0", "set_1", "set_2"]),
        ({"condition": "clear"}, []),
        ({"contact": "silent"}, []),
        ({"scaleSet": "set", "q": "_2"}, ["set_2"]),
    ],
)
def test_vms_are_filtered(
    console: ConsoleProcess, params: dict[str, str], expected: list[str]
) -> None:
    """Each filter of the VMs works; names are sorted without regard to case."""
    assert [item["name"] for item in console.get("vms", **params)["items"]] == expected


def cursor(*values: object) -> str:
    """Return a parameter that only looks like a cursor of the API."""
    return f"cursor={base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip('=')}"


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=x", "limit=1001", "cursor=!!", "cursor=e30", "state=x", "q=%00"),
        *(cursor("over", 10**400, "E"), cursor("over", 1.0, "\ud800"), cursor("over", 1.0, "\0")),
        cursor("over", float("inf"), "E"),
    ],
)
def test_a_wrong_parameter_is_refused_in_words(console: ConsoleProcess, query: str) -> None:
    """A wrong parameter is answered 422 with a sentence, and is never an error of the console."""
    answer = console.http.get(f"{console.url}/api/v1/events?{query}", timeout=10)
    assert answer.status_code == 422
    assert answer.json()["error"]


def test_an_event_has_its_timeline(console: ConsoleProcess) -> None:
    """The timeline of an event has every record and receipt in order, and who approved it."""
    event = console.get("events/E-PAST")
    kinds = [
        (each["kind"], each.get("transition") or each.get("state")) for each in event["timeline"]
    ]
    assert kinds == [
        ("record", "scheduled"),
        ("record", "started"),
        ("record", "ended"),
        ("receipt", "confirmed"),
    ]
    assert event["decision"]["state"] == "approved"
    assert event["decision"]["by"] == "rule:patching"
    assert event["decision"]["reason"] == event["timeline"][-1]["rsn"] == "CHG <1>"
    page = console.http.get(f"{console.url}/events/E-PAST", timeout=10).text
    assert "CHG &lt;1&gt;" in page
    assert "CHG <1>" not in page
    assert event["state"] == "ended"
    assert event["eventStatus"] == "Completed"


def test_a_vm_has_its_history(console: ConsoleProcess) -> None:
    """A VM's history has the measured notice and pause beside the announced ones."""
    vm = console.vms()["South-1"]
    assert vm["bridgeVersion"] == "2.0.0"
    detail = console.get(f"vms/{vm['vmId']}")
    past = next(each for each in detail["history"] if each["eventId"] == "E-PAST")
    assert past["pauseSeconds"] == 4.5
    assert len(record_ids(detail["timeline"])) == 5


@pytest.mark.parametrize("path", ["events/none", "vms/none", "events/%2e%2e%2fetc", "nothing"])
def test_what_is_not_there_is_404(console: ConsoleProcess, path: str) -> None:
    """An unknown event or VM is answered 404 in JSON."""
    answer = console.http.get(f"{console.url}/api/v1/{path}", timeout=10)
    assert answer.status_code == 404
    assert "error" in answer.json()


def test_the_overview_counts(console: ConsoleProcess) -> None:
    """The overview has the numbers of VMs by contact and by condition, and the sources."""
    seen = console.get("overview")
    assert seen["vms"]["total"] == seen["vms"]["heard"] == 4
    assert seen["conditions"] == {"clear": 0, "scheduled": 4, "started": 0}
    assert [each["name"] for each in seen["sources"]] == ["web"]
    assert seen["sources"][0]["lastRecordAt"].endswith("Z")


def test_a_foreign_host_is_refused(console: ConsoleProcess) -> None:
    """A page of another site whose own name points to this address cannot read anything."""
    for host, status in [
        ("evil.example", 421),
        (f"evil.example:{console.port}", 421),
        ("127.0.0.1@evil.example", 421),
        ("", 421),
        (f"localhost:{console.port}", 200),
        (f"127.0.0.1:{console.port}", 200),
    ]:
        headers = {"Host": host}
        answer = console.http.get(f"{console.url}/api/v1/vms", headers=headers, timeout=10)
        # An empty Host is refused by the server itself.
        assert answer.status_code in (status, 400 if not host else status), host


def test_get_is_the_only_method_of_what_is_read(console: ConsoleProcess) -> None:
    """A POST to a path that only shows something changes nothing, and is refused from
    another site.
    """
    address = f"{console.url}/api/v1/vms"
    assert console.http.post(address, timeout=10).status_code == 405
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
        assert console.http.post(address, headers=headers, timeout=10).status_code == 403
    foreign = {"Origin": "https://evil.example"}
    assert console.http.post(address, headers=foreign, timeout=10).status_code == 403


def test_the_stream_tells_what_comes(console: ConsoleProcess) -> None:
    """An open stream gets the messages about an event and its VM soon after the record was
    committed.
    """
    vm = FakeVm(name="streamed", site="stream")
    with console.http.get(f"{console.url}/api/v1/stream", stream=True, timeout=30) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines(decode_unicode=True)
        assert next(lines).startswith("retry:")
        assert console.post(vm.event("E-STREAMED")).status_code == 204
        sent = time.monotonic()
        fields: dict[str, Any] = {}
        kind = ""
        for line in lines:
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                item = json.loads(value)
                if "E-STREAMED" in value:
                    fields[kind] = item
            if {"event", "vm"} <= set(fields):
                break
        assert time.monotonic() - sent < 10
    assert fields["event"]["eventId"] == "E-STREAMED"
    assert fields["vm"]["name"] == "streamed"
    assert fields["vm"]["condition"] == "scheduled"


def test_metrics_have_no_ids(console: ConsoleProcess) -> None:
    """The metrics have the numbers, and no id of a VM or an event."""
    text = console.http.get(f"{console.url}/metrics", timeout=10).text
    assert 'seb_console_vms{contact="heard"}' in text
    assert "seb_console_quarantined_total" in text
    assert "E-SHARED" not in text
    assert FakeVm(name="set_0", scale_set="set").vm_id not in text


def test_what_is_described_is_answered(console: ConsoleProcess) -> None:
    """Each path answers with every field that /openapi.json describes, and no other."""
    described = console.http.get(f"{console.url}/openapi.json", timeout=10).json()
    event = next(iter(console.events(state="over")))
    names = {
        "eventId": event,
        "vmId": console.vms()["South-1"]["vmId"],
        "jti": "",
    }
    seen = set()
    for path, operations in described["paths"].items():
        if "get" not in operations or path.endswith(("stream", "{jti}")):
            continue
        answer = console.http.get(console.url + path.format(**names), timeout=10)
        assert answer.status_code == 200, path
        (kind, content), *_ = operations["get"]["responses"]["200"]["content"].items()
        assert answer.headers["content-type"].startswith(kind)
        if kind == "application/json":
            schema = {"$defs": described["components"]["schemas"], **content["schema"]}
            text = json.dumps(schema).replace("#/components/schemas/", "#/$defs/")
            Draft202012Validator(json.loads(text)).validate(answer.json())
            seen.add(path)
    assert {"/api/v1/events", "/api/v1/events/{eventId}", "/api/v1/vms/{vmId}"} <= seen
    assert described["components"]["schemas"]["EventItem"]["additionalProperties"] is False


def test_the_description_says_what_may_be_asked(console: ConsoleProcess) -> None:
    """/openapi.json has each parameter with its limits and words, and what a decision is."""
    described = console.http.get(f"{console.url}/openapi.json", timeout=10).json()
    listed = described["paths"]["/api/v1/events"]["get"]["parameters"]
    by_name = {each["name"]: each for each in listed}
    assert set(by_name) == {
        *("state", "q", "site", "type", "status", "by", "vm", "tag", "group", "since", "until"),
        *("format", "limit", "cursor"),
    }
    assert by_name["state"]["schema"]["enum"] == ["open", "over"]
    assert by_name["limit"]["schema"] == {"type": "integer", "minimum": 1, "maximum": 1000}
    scale_set = described["paths"]["/api/v1/vms"]["get"]["parameters"]
    assert "scaleSet" in {each["name"] for each in scale_set}
    approve = described["paths"]["/api/v1/events/{eventId}/approve"]["post"]
    assert set(approve["responses"]) == {"202", "409", "default"}
    body = described["components"]["schemas"]["DecisionBody"]
    assert body["required"] == ["fingerprint", "reason"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/events?stat=open",
        "/api/v1/events/E-PAST?limit=1",
        "/api/v1/vms?scale_set=x",
        "/api/v1/audit?before=1",
        "/api/v1/overview?site=north",
        "/api/v1/stream?x=",
        "/openapi.json?x=1",
        "/?site=north",
        "/fleet?sit=north",
        "/decide?vm=x",
        "/decide/confirm?vm=x",
        "/audit?after=1",
        "/events/E-PAST?x=1",
    ],
)
def test_an_unknown_parameter_is_refused(console: ConsoleProcess, path: str) -> None:
    """An unknown parameter is answered 400 with its name: a filter with a typo must not show
    everything.
    """
    answer = console.http.get(console.url + path, timeout=10)
    assert answer.status_code == 400
    name = path.partition("?")[2].partition("=")[0]
    assert name in answer.text
