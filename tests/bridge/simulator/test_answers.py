"""The simulator answers requests as IMDS does."""

from datetime import UTC, datetime

import pytest
from support.documents.documents import FakeClock
from support.imds.client import COMPUTE, EVENTS, METADATA, ask, connect

from bridge.known_api_versions import EVENTS_API_VERSIONS
from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator
from bridge.simulator.vm import SimulatedVm
from wire.event import EVENT_FIELDS, azure_name


@pytest.mark.parametrize("headers", [{}, {"Metadata": "false"}, {"X-Metadata": "true"}])
def test_the_metadata_header_is_required(
    imds_simulator: Simulator, headers: dict[str, str]
) -> None:
    """Without `Metadata: true` the answer is 400 and a JSON object with an error."""
    reply = ask(imds_simulator.url, headers=headers)
    expected = {"error": "Bad request. Required metadata header not specified"}
    assert (400, expected) == (reply.status, reply.json())


def test_a_forwarded_request_is_refused(imds_simulator: Simulator) -> None:
    """A request with X-Forwarded-For is 400, whatever else it holds."""
    headers = {**METADATA, "X-Forwarded-For": "10.0.0.1"}
    assert ask(imds_simulator.url, headers=headers).status == 400


@pytest.mark.parametrize("query", ["", "?api-version=", "?api-version=2031-01-01", "?x=y"])
def test_an_unknown_api_version_lists_the_newest(imds_simulator: Simulator, query: str) -> None:
    """A missing or unknown api-version is answered 400 with the three newest ones."""
    reply = ask(imds_simulator.url, f"/metadata/scheduledevents{query}")
    newest = [*reversed(EVENTS_API_VERSIONS)][:3]
    assert (400, newest) == (reply.status, reply.json()["newest-versions"])


@pytest.mark.parametrize(
    ("target", "method", "status"),
    [
        ("/", "GET", 404),
        ("/metadata/identity/oauth2/token", "GET", 404),
        ("/metadata/scheduledeventsx", "GET", 404),
        (EVENTS, "PUT", 405),
        (EVENTS, "DELETE", 405),
        (COMPUTE, "POST", 405),
    ],
)
def test_other_paths_and_methods_are_json_errors(
    imds_simulator: Simulator, target: str, method: str, status: int
) -> None:
    """Unknown paths are 404 and other methods 405, each with a JSON error."""
    reply = ask(imds_simulator.url, target, method=method, body=b"{}" if method != "GET" else None)
    assert (status, ["error"]) == (reply.status, list(reply.json()))


def test_every_api_version_is_offered_without_one() -> None:
    """The list of api-versions needs no api-version, and has those of all paths."""
    with Simulator(api_versions=[*EVENTS_API_VERSIONS, "2031-01-01"]) as simulator:
        offered = ask(simulator.url, "/metadata/versions").json()["apiVersions"]
    assert {"2017-03-01", "2020-07-01", "2021-02-01", "2031-01-01"} <= set(offered)
    assert offered == sorted(offered)


def test_the_instance_document_tells_who_we_are() -> None:
    """The instance endpoint answers the fields that identify the VM."""
    vm = SimulatedVm(name="web_7", scale_set="web", zone="", tags={"team": "a", "stage": "b"})
    with Simulator(vm=vm) as simulator:
        compute = ask(simulator.url, COMPUTE).json()
        whole = ask(simulator.url, "/metadata/instance?api-version=2021-02-01").json()
    assert whole["compute"] == compute
    told = {"name": "web_7", "vmScaleSetName": "web", "zone": "", "platformFaultDomain": "0"}
    assert compute.items() >= {**told, "tags": "team:a;stage:b"}.items()
    assert compute["tagsList"] == [{"name": "team", "value": "a"}, {"name": "stage", "value": "b"}]
    assert compute["resourceId"].endswith("/virtualMachineScaleSets/web/virtualMachines/7")


DUE = datetime(2026, 3, 5, 9, 8, 7, 999000, tzinfo=UTC)


def test_not_before_is_rfc_1123_and_blank_once_started(imds_simulator: Simulator) -> None:
    """NotBefore is a GMT date, cut to whole seconds, and blank on a Started event."""
    event = imds_simulator.announce(SimulatedEvent(not_before=DUE))
    scheduled = ask(imds_simulator.url).json()["Events"][0]
    imds_simulator.start_event(event.event_id.lower())
    started = ask(imds_simulator.url).json()["Events"][0]
    assert scheduled["NotBefore"] == "Thu, 05 Mar 2026 09:08:07 GMT"
    assert {**scheduled, "EventStatus": "Started", "NotBefore": ""} == started


def fields(version: str, event_type: str) -> list[str] | None:
    """Return the fields of an event of a type in the form of a version; None if the version does
    not show the event.
    """
    with Simulator() as simulator:
        simulator.announce(SimulatedEvent(event_type=event_type))
        target = f"/metadata/scheduledevents?api-version={version}"
        events = ask(simulator.url, target).json()["Events"]
    return sorted(events[0]) if events else None


BASE = ["EventId", "EventStatus", "EventType", "NotBefore", "ResourceType", "Resources"]


def test_the_newest_version_has_every_field_of_an_event() -> None:
    """The simulator can send every field that the bridge reads."""
    assert fields(EVENTS_API_VERSIONS[-1], "Freeze") == sorted(map(azure_name, EVENT_FIELDS))


def test_older_versions_leave_out_what_came_later() -> None:
    """Each api-version has the fields that it had when it came out."""
    later = {version: fields(version, "Freeze") or [] for version in EVENTS_API_VERSIONS}
    added = {version: sorted(set(names) - set(BASE)) for version, names in later.items()}
    assert added == {
        "2017-03-01": [],
        "2017-08-01": [],
        "2017-11-01": [],
        "2019-01-01": [],
        "2019-04-01": ["Description"],
        "2019-08-01": ["Description", "EventSource"],
        "2020-07-01": ["Description", "DurationInSeconds", "EventSource"],
    }


@pytest.mark.parametrize(
    ("event_type", "since"), [("Preempt", "2017-11-01"), ("Terminate", "2019-01-01")]
)
def test_older_versions_do_not_show_newer_types(event_type: str, since: str) -> None:
    """An event of a type that a version does not know is not in its document."""
    shown = [version for version in EVENTS_API_VERSIONS if fields(version, event_type) is not None]
    assert [version for version in EVENTS_API_VERSIONS if version >= since] == shown


def test_a_connection_is_kept_alive(imds_simulator: Simulator) -> None:
    """Several requests, good and bad, go over one connection."""
    connection = connect(imds_simulator.url)
    statuses = []
    for headers in (METADATA, {}, METADATA):
        connection.request("GET", EVENTS, headers=headers)
        response = connection.getresponse()
        response.read()
        statuses.append(response.status)
    socket_stayed = connection.sock is not None
    connection.close()
    assert (statuses, socket_stayed) == ([200, 400, 200], True)


def test_the_rate_limit_counts_a_second() -> None:
    """With a limit of 5, the sixth request within a second is answered 429; a second later requests
    are answered again.
    """
    clock = FakeClock()
    with Simulator(rate_limit=5, clock=clock) as simulator:
        statuses = [ask(simulator.url).status for _ in range(6)]
        clock.advance(1.0)
        later = ask(simulator.url).status
    assert (statuses, later) == ([200] * 5 + [429], 200)


def test_a_hand_written_document_goes_out_as_it_is(imds_simulator: Simulator) -> None:
    """A document given as bytes is sent unchanged, and a mapping as its JSON, until the next
    change.
    """
    imds_simulator.serve(b'\xef\xbb\xbf{"Events": [}')
    raw = ask(imds_simulator.url).body
    imds_simulator.serve({"DocumentIncarnation": 9, "Events": [{"EventId": "x", "New": None}]})
    mapping = ask(imds_simulator.url).json()
    imds_simulator.announce(SimulatedEvent())
    after = ask(imds_simulator.url).json()
    assert raw == b'\xef\xbb\xbf{"Events": [}'
    assert mapping == {"DocumentIncarnation": 9, "Events": [{"EventId": "x", "New": None}]}
    assert after["DocumentIncarnation"] == 2
