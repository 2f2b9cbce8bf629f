"""`seb check`, the most important command when something does not work."""

import json
from typing import Any

import pytest
from support.process.bridge import EndedCommand, run_seb
from support.process.launch import Launch
from support.process.seb_here import Here
from support.sinks.five_sinks import PASSWORD, FiveSinks
from support.sinks.http_server import HttpServer

from bridge.known_api_versions import EVENTS_API_VERSIONS
from bridge.simulator.events import SimulatedEvent
from bridge.simulator.faults import Html, StatusFault
from bridge.simulator.simulator import Simulator

UNKNOWN = "there is no such setting; did you mean"


@pytest.fixture
def check(launch: Launch, here: Here) -> Here:
    """Run `seb check`; return its outcome."""
    return lambda *arguments, **variables: here("check", *arguments, **{**launch.env, **variables})


def steps(said: EndedCommand) -> list[tuple[str, str]]:
    """Return level and name of each line."""
    return [(each["step"], each["level"]) for each in objects(said)]


def objects(said: EndedCommand) -> list[dict[str, Any]]:
    """Return the objects of `--json`."""
    return [json.loads(line) for line in said.out.splitlines()]


def test_all_is_well(check: Here, launch: Launch, imds_simulator: Simulator) -> None:
    """There is a line for each step and exit code 0; no store is made, no record is sent, and
    standard error is empty.
    """
    imds_simulator.announce(SimulatedEvent())
    with FiveSinks(launch.home / "far") as sinks:
        result = check(**sinks.env)
        assert (result.code, result.err) == (0, "")
        assert {line[:6] for line in result.out.splitlines()} == {"ok    "}
        assert "this VM is vm-0 (3f6a1c1e-8d55-4c0b-9a3e-5b1f0c7d2e90) in westeurope" in result.out
        assert f"api-version {EVENTS_API_VERSIONS[-1]}; 1 event is pending" in result.out
        for name in ("stdout", "file", "webhook", "mqtt", "eventhub"):
            assert f"\nok    sink {name}: " in result.out
        assert set(map(len, sinks.received().values())) == {0}
    assert not launch.state.exists()


def test_as_json(check: Here) -> None:
    """`--json` prints one object for each step, with four fields."""
    result = check("--json")
    assert {tuple(sorted(each)) for each in objects(result)} == {
        ("level", "remedy", "step", "text")
    }
    assert steps(result) == [
        *(("settings", "warn"), ("state", "ok"), ("approval", "ok")),
        *(("imds", "ok"), ("identity", "ok"), ("sink stdout", "ok")),
    ]


def test_unknown_api_versions_are_named(check: Here) -> None:
    """Api-versions that this release does not know are named, with the setting that selects one."""
    with Simulator(api_versions=[*EVENTS_API_VERSIONS, "2031-01-01", "2032-01-01"]) as simulator:
        result = check("--json", SEB_IMDS__URL=simulator.url)
    told = [each for each in objects(result) if each["step"] == "imds"]
    assert [each["level"] for each in told] == ["ok", "ok"]
    assert "newer api-versions (2031-01-01, 2032-01-01)" in told[1]["text"]
    assert "SEB_IMDS__API_VERSION" in told[1]["text"]


def test_nothing_answers(check: Here, launch: Launch, imds_simulator: Simulator) -> None:
    """If IMDS and the sinks do not answer, or refuse the password, the exit code is 69, with
    remedies.
    """
    with FiveSinks(launch.home / "far") as sinks:
        sinks.http.stop()
        wrong = {"SEB_SINK__MQTT__PASSWORD": f"{PASSWORD}x", "SEB_IMDS__URL": "http://127.0.0.1:9"}
        result = check("--json", **{**sinks.env, **wrong})
    assert result.code == 69
    failed = [each for each in objects(result) if each["level"] == "fail"]
    names = ["imds", "identity", "sink webhook", "sink mqtt"]
    assert [each["step"] for each in failed] == names
    assert all(each["remedy"] for each in failed)


def test_something_else_answers(check: Here, imds_simulator: Simulator) -> None:
    """A page instead of a document is a failure of IMDS only."""
    imds_simulator.fault(Html(), times=None)
    result = check("--json")
    assert result.code == 69
    assert ("imds", "fail") in steps(result)
    assert ("identity", "ok") in steps(result)


def test_wrong_settings(check: Here) -> None:
    """Each wrong setting has a line, nothing else is checked, and the exit code is 78."""
    result = check(SEB_SINK__MQTT__PROT="1")
    assert (result.code, result.err) == (78, "")
    assert result.out.splitlines() == [
        "FAIL  settings: SEB_SINK__MQTT__HOST: this must be given",
        "      -> see `seb config env` for every setting",
        f"FAIL  settings: SEB_SINK__MQTT__PROT: {UNKNOWN} SEB_SINK__MQTT__PORT?",
        "      -> see `seb config env` for every setting",
    ]


def test_keys_that_cannot_be_trusted(check: Here, launch: Launch) -> None:
    """`check` and `run` end with 78 and the same message about invalid keys; `check` shows further
    errors too.
    """
    variables = {"SEB_APPROVAL__TRUST": str(launch.home / "no.json")}
    result = check("--offline", "--json", **variables)
    (found,) = [each for each in objects(result) if each["level"] == "fail"]
    assert (result.code, found["step"], bool(found["remedy"])) == (78, "approval", True)
    ran = run_seb("run", home=launch.home, env={**launch.env, **variables})
    assert (ran.code, ran.err) == (78, f"seb: {found['text']}\n")
    assert not launch.state.exists()


def test_offline_uses_no_network(check: Here, imds_simulator: Simulator) -> None:
    """With --offline only settings, state and approval are checked."""
    result = check("--offline", "--json")
    assert result.code == 0
    assert steps(result) == [("settings", "warn"), ("state", "ok"), ("approval", "ok")]
    assert imds_simulator.gets == 0


def test_a_state_directory_that_cannot_be(check: Here, launch: Launch) -> None:
    """A file in place of the state directory is 78, with a remedy."""
    (launch.home / "state").write_text("in the way")
    result = check("--offline", "--json")
    (found,) = [each for each in objects(result) if each["step"] == "state"]
    assert (result.code, found["level"], bool(found["remedy"])) == (78, "fail", True)


def test_beside_a_bridge_that_runs(check: Here, launch: Launch, imds_simulator: Simulator) -> None:
    """Beside a running bridge, `check` asks it, names the sink that fails, and does not disturb
    it.
    """
    with FiveSinks(launch.home / "far") as sinks:
        sinks.http.stop()
        bridge = launch(**sinks.env)
        bridge.wait_for_log("sink_down")
        bridge.wait_for_log("sink_up", count=4)
        result = check(**sinks.env)
        assert result.code == 69
        assert f"ok    state: {launch.state} is in use by the bridge that runs here\n" in result.out
        assert "warn  state: webhook: failing, " in result.out
        failing = "FAIL  sink webhook: failing in the running bridge, records to deliver: 1; "
        assert failing in result.out
        assert "ok    sink mqtt: ok in the running bridge, last delivered 20" in result.out
        online = [each.payload for each in sinks.seen.messages() if each.topic.endswith("/status")]
        assert [json.loads(payload)["status"] for payload in online] == ["online"]
        assert bridge.stop() == 0


def test_what_the_running_sink_was_answered_counts(
    check: Here, launch: Launch, imds_simulator: Simulator
) -> None:
    """If the receiver can be reached and refuses the bridge's secret, `check` ends with 69 and
    names the sink and a remedy.
    """
    with HttpServer() as server:
        server.answer(status=401, times=50)
        hook = {"SEB_SINK__WEBHOOK__URL": f"{server.origin}/x"}
        launch(**hook).wait_for_log("sink_down")
        result = check("--json", **hook)
        told = [each for each in objects(result) if each["step"] == "sink webhook"]
        assert result.code == 69
        assert [each["level"] for each in told] == ["warn", "ok", "fail"]
        assert "401 Unauthorized" in told[-1]["text"]
        assert "seb outbox retry webhook" in told[-1]["remedy"]
        assert check("--offline", **hook).code == 0


def test_a_damaged_store_is_a_warning(check: Here, launch: Launch) -> None:
    """A damaged store is a warning, and `check` leaves it as it is: the bridge will rename it."""
    bridge = launch()
    bridge.wait_for_log("started")
    bridge.stop()
    (launch.state / "seb.db").write_bytes(b"no database" * 1000)
    before = sorted(each.name for each in launch.state.iterdir())
    result = check("--offline", "--json")
    (found,) = [each for each in objects(result) if each["step"] == "state"]
    assert (result.code, found["level"], "damaged" in found["text"]) == (0, "warn", True)
    assert sorted(each.name for each in launch.state.iterdir()) == before
    assert (launch.state / "seb.db").read_bytes() == b"no database" * 1000


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (403, "something answers and refuses this process"),
        (404, "IMDS may be in an update"),
        (429, "other programs on this VM ask IMDS too often"),
        (503, "IMDS itself has a problem"),
    ],
)
def test_the_remedy_fits_the_status(
    check: Here, imds_simulator: Simulator, status: int, remedy: str
) -> None:
    """A refusal of IMDS has a remedy of its own, and not the advice to wait for the first
    answer.
    """
    imds_simulator.fault(StatusFault(status), times=None)
    (found,) = [each for each in objects(check("--json")) if each["step"] == "imds"]
    assert (found["level"], found["remedy"][: len(remedy)]) == ("fail", remedy)


def test_it_asks_what_the_running_bridge_asks(launch: Launch, imds_simulator: Simulator) -> None:
    """`check` in a shell without the service's settings asks the running bridge's IMDS, and shows
    the difference.
    """
    bridge = launch(SEB_SINK__FILE__PATH="out.jsonl")
    bridge.wait_for_log("started")
    env = {"SEB_STATE_DIR": str(launch.state), "SEB_IMDS__URL": "http://127.0.0.1:9"}
    result = run_seb("check", "--json", home=launch.home, env=env)
    fields = {each["step"]: each for each in objects(result)}
    assert (fields["imds"]["level"], imds_simulator.url in fields["imds"]["text"]) == ("ok", True)
    warned = [each["text"] for each in objects(result) if each["level"] == "warn"]
    asks = f"the running bridge asks IMDS at {imds_simulator.url}"
    assert f"{asks}, and these settings say http://127.0.0.1:9" in warned
    assert "the running bridge has the sinks file, and these settings name stdout" in warned


def test_a_comment_that_became_part_of_a_value_is_shown(check: Here, launch: Launch) -> None:
    """A comment that became part of a path is a warning that shows the value in quotes."""
    path = str(launch.home / "out.jsonl # the records")
    result = check("--offline", SEB_SINK__FILE__PATH=path)
    assert f'warn  settings: SEB_SINK__FILE__PATH is "{path}": a comment needs a line' in result.out
