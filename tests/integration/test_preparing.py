"""The sink that prepares: a command, an approval or the deadline asks it, and nothing else does."""

import json
import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.eventually import eventually
from support.ports import free_port
from support.process.bridge import BridgeProcess, run_seb
from support.process.launch import Launch
from support.process.scripts import python_script

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.faults import Silence, StatusFault
from bridge.simulator.simulator import Simulator

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX scripts")

# A line a run; how it ends is what the file `code` says: 0 unless the test wrote another.
PROGRAM = """
import json, os, sys, time
home = sys.argv[1]
json.load(sys.stdin)
with open(os.path.join(home, 'runs'), 'a') as file:
    file.write(os.environ['SEB_EVENT_TRANSITION'] + '\\n')
hold = os.path.join(home, 'hold')
while os.path.exists(hold):
    time.sleep(0.02)
code = os.path.join(home, 'code')
sys.exit(int(open(code).read()) if os.path.exists(code) else 0)
"""


class PreparingProcess:
    """A bridge whose program prepares, and what the program has been told."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self.home = launch.home
        # Once: a program of the run before may still be starting, and is not written then.
        self._program = python_script(self.home / "drain", PROGRAM)
        self.bridge: BridgeProcess

    def start(self, *, name: str = "DRAIN", **variables: str) -> BridgeProcess:
        """Start the bridge; the sink has that name."""
        sink = {
            f"SEB_SINK__{name}__KIND": "program",
            f"SEB_SINK__{name}__COMMAND": json.dumps([str(self._program), str(self.home)]),
            f"SEB_SINK__{name}__PREPARES": "true",
        }
        self.bridge = self._launch(**{"SEB_SINK__STDOUT__FORMAT": "json", **sink, **variables})
        self.bridge.wait_for_records(1)
        return self.bridge

    def ends_with(self, code: int) -> None:
        """How the program ends from now on."""
        (self.home / "code").write_text(str(code))

    def hold(self) -> None:
        """The program does not end until `go`."""
        (self.home / "hold").touch()

    def go(self) -> None:
        """Let it end."""
        (self.home / "hold").unlink()

    def runs(self) -> list[str]:
        """The transition of each run."""
        path = self.home / "runs"
        return path.read_text().split() if path.exists() else []

    def states(self) -> list[tuple[str, str, str | None]]:
        """State, cause (its first word) and reason of each preparation record."""
        return [
            (each["data"]["state"], each["data"]["cause"].partition(":")[0], each["data"]["reason"])
            for each in self.bridge.records
            if each["type"] == "seb.preparation.v1"
        ]

    def receipts(self) -> list[tuple[str, str | None]]:
        """State and reason of each receipt."""
        return [
            (each["data"]["state"], each["data"]["reason"])
            for each in self.bridge.records
            if each["type"] == "seb.approval.v1"
        ]


def cli(launch: Launch, *words: str, **variables: str) -> Any:
    """The outcome of a command on the VM."""
    return run_seb(*words, env={**launch.env, **variables}, home=launch.home)


def waiting(launch: Launch) -> list[int]:
    """How many records each sink of this run still has to get."""
    outbox = json.loads(cli(launch, "outbox", "list", "--json").out)
    return [each["backlog"] for each in outbox["sinks"] if each["configured"]]


@pytest.fixture
def preparing(launch: Launch) -> PreparingProcess:
    """A bridge with a program that prepares, not yet started."""
    return PreparingProcess(launch)


def an_event(seconds: float = 900, **fields: Any) -> SimulatedEvent:
    """A reboot of this VM in so many seconds."""
    soon = datetime.now(UTC) + timedelta(seconds=seconds)
    return SimulatedEvent(**{"event_type": "Reboot", "not_before": soon, **fields})


RULE = json.dumps([{"name": "all"}])


def test_an_event_reaches_the_program_only_once_it_is_asked(
    preparing: PreparingProcess, simulator: Simulator, launch: Launch
) -> None:
    """Its announcement does not; a person does; a second wish is answered without a second run."""
    listen = {"SEB_HTTP__LISTEN": f"127.0.0.1:{free_port()}"}
    preparing.start(**listen)
    event = simulator.announce(an_event())
    preparing.bridge.wait_for_records(1, types="seb.event.scheduled")
    assert preparing.runs() == []
    assert "this VM, not prepared" in cli(launch, "status", **listen).out
    first = cli(launch, "prepare", event.event_id, "--json")
    assert first.code == 0, first.err
    assert [json.loads(line)["state"] for line in first.out.splitlines()][-1] == "confirmed"
    assert cli(launch, "prepare", event.event_id).code == 0
    assert preparing.runs() == ["scheduled"]
    assert preparing.states() == [("preparing", "command", None), ("prepared", "command", None)]
    assert "this VM, prepared" in cli(launch, "status", **listen).out
    (shown,) = json.loads(cli(launch, "status", "--json", **listen).out)["events"]
    assert shown["preparation"] == "prepared"
    assert simulator.approvals == []
    simulator.start_event(event.event_id)
    preparing.bridge.wait_for_records(1, types="seb.event.started")
    assert "prepared" not in cli(launch, "status", **listen).out  # what has begun needs no word
    simulator.end_event(event.event_id)
    preparing.bridge.wait_for_records(3, types="seb.preparation")
    assert preparing.runs() == ["scheduled", "started", "ended"]
    assert preparing.states()[-1] == ("recovered", "command", None)


def test_an_event_that_ends_unasked_never_reaches_the_program(
    preparing: PreparingProcess, simulator: Simulator
) -> None:
    """There is nothing to recover from."""
    preparing.start()
    event = simulator.announce(an_event())
    preparing.bridge.wait_for_records(1, types="seb.event.scheduled")
    simulator.end_event(event.event_id)
    preparing.bridge.wait_for_records(1, types="seb.event.ended")
    assert preparing.bridge.stop() == 0
    assert preparing.runs() == []


def test_an_approval_waits_for_the_program(
    preparing: PreparingProcess, simulator: Simulator
) -> None:
    """The rule approves at once; IMDS hears of it when the program has ended with 0."""
    preparing.hold()
    preparing.start(SEB_APPROVAL__RULES=RULE)
    simulator.announce(an_event())
    eventually(lambda: preparing.runs() == ["scheduled"], what="the program")
    assert simulator.wait_until_served(gets=3)
    assert simulator.approvals == []
    preparing.go()
    preparing.bridge.wait_for_records(1, types="seb.event.started")
    assert preparing.receipts()[:2] == [("accepted", None), ("posted", None)]
    assert preparing.states()[:2] == [
        ("preparing", "approval", None),
        ("prepared", "approval", None),
    ]


def test_a_program_that_gives_up_stops_the_approval(
    preparing: PreparingProcess, simulator: Simulator
) -> None:
    """Exit code 65: nothing is posted, and the receipt says why."""
    preparing.ends_with(65)
    preparing.start(SEB_APPROVAL__RULES=RULE)
    simulator.announce(an_event())
    eventually(lambda: ("failed", "not_prepared") in preparing.receipts(), what="the receipt")
    assert [state for state, _, _ in preparing.states()] == ["preparing", "failed"]
    assert simulator.wait_until_served(gets=3)
    assert simulator.approvals == []


def test_a_rule_for_other_vms_is_not_fulfilled_by_a_program_that_is_not_asked(
    preparing: PreparingProcess, simulator: Simulator
) -> None:
    """This VM prepares for events that name it alone: no other is approved after the program."""
    rule = {"name": "peers", "affects_this_vm": False, "max_resources": 2, "after": ["drain"]}
    preparing.start(SEB_APPROVAL__RULES=json.dumps([rule]))
    simulator.announce(an_event(resources=("db_7",)))
    said = preparing.bridge.wait_for_log("rule_decision")["message"]
    assert said == "wait: drain has not acknowledged it"
    assert simulator.wait_until_served(gets=3)
    assert (simulator.approvals, preparing.runs()) == ([], [])


def test_lead_seconds_before_the_event_the_program_is_asked_anyway(
    preparing: PreparingProcess, simulator: Simulator
) -> None:
    """A console that is away must not leave the VM unprepared."""
    preparing.start(SEB_SINK__DRAIN__LEAD="600")
    simulator.announce(an_event(seconds=605))
    preparing.bridge.wait_for_records(2, types="seb.preparation")
    assert preparing.states() == [("preparing", "deadline", None), ("prepared", "deadline", None)]


def test_the_deadline_counts_while_the_identity_is_not_confirmed(
    preparing: PreparingProcess, simulator: Simulator
) -> None:
    """To prepare is no approval: after a restart it waits for no answer about the identity."""
    preparing.start()
    assert preparing.bridge.stop() == 0
    simulator.fault(StatusFault(503), times=None, at="instance")
    simulator.announce(an_event(seconds=300))
    preparing.start(SEB_SINK__DRAIN__LEAD="600")
    eventually(lambda: preparing.runs() == ["scheduled"], what="the program")


def test_the_deadline_comes_while_a_poll_hangs(
    preparing: PreparingProcess, simulator: Simulator
) -> None:
    """The first poll of a run may be waited for longer than the event waits."""
    preparing.start(SEB_SINK__DRAIN__LEAD="600")
    simulator.announce(an_event(seconds=615))
    preparing.bridge.wait_for_records(1, types="seb.event.scheduled")
    preparing.bridge.kill()
    simulator.fault(Silence(), times=None)
    preparing.start(SEB_SINK__DRAIN__LEAD="600", SEB_IMDS__TIMEOUT="60")
    eventually(lambda: preparing.runs() == ["scheduled"], what="the program", timeout=40)


def test_the_deadline_comes_between_two_polls(
    preparing: PreparingProcess, simulator: Simulator
) -> None:
    """Polls may be rare."""
    simulator.announce(an_event(seconds=605))
    preparing.start(SEB_SINK__DRAIN__LEAD="600", SEB_POLL_INTERVAL="60")
    eventually(lambda: preparing.runs() == ["scheduled"], what="the program", timeout=40)


def test_what_was_being_prepared_is_taken_up_before_the_identity_is_confirmed(
    preparing: PreparingProcess, simulator: Simulator, launch: Launch
) -> None:
    """Within one boot: what was asked for is not lost with the process."""
    preparing.hold()
    preparing.start()
    event = simulator.announce(an_event())
    preparing.bridge.wait_for_records(1, types="seb.event.scheduled")
    cli(launch, "prepare", event.event_id, "--wait", "0.1")
    eventually(lambda: preparing.runs() == ["scheduled"], what="the program")
    preparing.bridge.kill()
    preparing.go()
    simulator.fault(StatusFault(503), times=None, at="instance")
    preparing.start()
    done = ("prepared", "command", None)
    eventually(lambda: done in preparing.states(), what="the preparation")
    assert preparing.runs() == ["scheduled", "scheduled"]


def test_a_wish_is_fulfilled_while_imds_does_not_answer(
    preparing: PreparingProcess, simulator: Simulator, launch: Launch
) -> None:
    """It is asked when it is accepted, and confirmed once IMDS shows the event again."""
    preparing.start()
    event = simulator.announce(an_event())
    preparing.bridge.wait_for_records(1, types="seb.event.scheduled")
    simulator.fault(StatusFault(503), times=None)
    preparing.bridge.wait_for_log("imds_trouble")
    cli(launch, "prepare", event.event_id, "--wait", "0.1")
    preparing.bridge.wait_for_records(2, types="seb.preparation")
    assert preparing.receipts() == [("accepted", None)]
    simulator.heal()
    eventually(lambda: ("confirmed", None) in preparing.receipts(), what="the receipt")


def test_an_event_that_ends_while_the_program_runs_fails_the_preparation(
    preparing: PreparingProcess, simulator: Simulator, launch: Launch
) -> None:
    """The receipt says what became of the event, and the program is told of the end."""
    preparing.hold()
    preparing.start()
    event = simulator.announce(an_event())
    preparing.bridge.wait_for_records(1, types="seb.event.scheduled")
    cli(launch, "prepare", event.event_id, "--wait", "0.1")
    eventually(lambda: preparing.runs() == ["scheduled"], what="the program")
    simulator.end_event(event.event_id)
    eventually(lambda: ("failed", "unknown_event") in preparing.receipts(), what="the receipt")
    preparing.go()
    eventually(lambda: preparing.runs() == ["scheduled", "ended"], what="the end")
    eventually(lambda: len(preparing.states()) == 3, what="the last state")
    assert [(state, why) for state, _, why in preparing.states()] == [
        ("preparing", None),
        ("failed", "unknown_event"),
        ("recovered", None),
    ]


def test_a_preparation_survives_kill_9(preparing: PreparingProcess, simulator: Simulator) -> None:
    """What was not reported is done again; what was reported is not."""
    preparing.hold()
    preparing.start(SEB_APPROVAL__RULES=RULE)
    event = simulator.announce(an_event())
    eventually(lambda: preparing.runs() == ["scheduled"], what="the program")
    preparing.bridge.kill()
    preparing.go()
    preparing.start(SEB_APPROVAL__RULES=RULE)
    preparing.bridge.wait_for_records(1, types="seb.event.started")
    assert preparing.runs()[:2] == ["scheduled", "scheduled"]
    preparing.bridge.kill()
    preparing.start(SEB_APPROVAL__RULES=RULE)
    simulator.end_event(event.event_id)
    eventually(lambda: "ended" in preparing.runs(), what="the end")
    assert preparing.runs().count("scheduled") == 2


def test_an_event_that_changes_and_changes_back_is_still_prepared(
    preparing: PreparingProcess, simulator: Simulator, launch: Launch
) -> None:
    """A program does not run twice for one state that it has prepared."""
    preparing.start()
    event = simulator.announce(an_event())
    assert cli(launch, "prepare", event.event_id).code == 0
    before = event.not_before
    assert before is not None
    for count, moment in enumerate((before + timedelta(seconds=60), before), start=1):
        simulator.move(event.event_id, moment)
        preparing.bridge.wait_for_records(count, types="seb.event.updated")
    assert cli(launch, "prepare", event.event_id).code == 0
    assert preparing.runs() == ["scheduled"]


def test_a_wish_without_a_sink_that_prepares_fails(
    preparing: PreparingProcess, simulator: Simulator, launch: Launch
) -> None:
    """The sink is taken out while it is asked: nothing was prepared, and nothing says so."""
    preparing.ends_with(1)
    preparing.start()
    event = simulator.announce(an_event())
    preparing.bridge.wait_for_records(1, types="seb.event.scheduled")
    cli(launch, "prepare", event.event_id, "--wait", "0.1")
    eventually(lambda: preparing.runs() != [], what="the program")
    assert preparing.bridge.stop() == 0
    preparing.start(SEB_SINK__DRAIN__PREPARES="false", SEB_SINK__DRAIN__TYPES="[]")
    eventually(lambda: ("failed", "not_prepared") in preparing.receipts(), what="the receipt")


def test_a_sink_that_prepares_no_more_learns_what_is_pending(
    preparing: PreparingProcess, simulator: Simulator, launch: Launch
) -> None:
    """What it acknowledged unseen is no acknowledgement for a rule."""
    preparing.start()
    event = simulator.announce(an_event())
    preparing.bridge.wait_for_records(1, types="seb.event.scheduled")
    simulator.move(event.event_id, datetime.now(UTC) + timedelta(seconds=800))
    preparing.bridge.wait_for_records(1, types="seb.event.updated")
    eventually(lambda: waiting(launch) == [0, 0], what="every record acknowledged")
    assert preparing.bridge.stop() == 0
    rule = json.dumps([{"name": "all", "after": ["drain"]}])
    preparing.ends_with(65)  # or the rule would approve at once, and the event end
    preparing.start(SEB_SINK__DRAIN__PREPARES="false", SEB_APPROVAL__RULES=rule)
    eventually(lambda: preparing.runs() == ["updated"], what="the program")
    assert simulator.approvals == []


def test_a_sink_of_another_name_is_asked_again(
    preparing: PreparingProcess, simulator: Simulator, launch: Launch
) -> None:
    """What the old name was asked for and did not do, the new one does."""
    preparing.ends_with(1)
    preparing.start()
    event = simulator.announce(an_event())
    preparing.bridge.wait_for_records(1, types="seb.event.scheduled")
    cli(launch, "prepare", event.event_id, "--wait", "0.1")
    eventually(lambda: preparing.runs() != [], what="the program")
    assert preparing.bridge.stop() == 0
    preparing.ends_with(0)
    preparing.start(name="OTHER")
    eventually(lambda: ("confirmed", None) in preparing.receipts(), what="the receipt")


@pytest.mark.parametrize(
    "between",
    [
        {},
        {
            "SEB_SINK__OTHER__KIND": "program",
            "SEB_SINK__OTHER__COMMAND": "true",
            "SEB_SINK__OTHER__TYPES": json.dumps(["seb.bridge.*"]),
        },
    ],
)
def test_a_sink_of_another_name_gets_the_end_of_what_was_prepared(
    preparing: PreparingProcess, simulator: Simulator, launch: Launch, between: dict[str, str]
) -> None:
    """It ends in a run in which no sink prepares; the next one that does is told."""
    preparing.start(SEB_APPROVAL__RULES=RULE)
    event = simulator.announce(an_event())
    preparing.bridge.wait_for_records(1, types="seb.event.started")
    assert preparing.bridge.stop() == 0
    without = launch(SEB_SINK__STDOUT__FORMAT="json", **between)
    simulator.end_event(event.event_id)
    without.wait_for_records(1, types="seb.event.ended")
    assert without.stop() == 0
    preparing.start(name="OTHER")
    eventually(lambda: preparing.runs()[-1:] == ["ended"], what="the end")
    eventually(lambda: preparing.states()[-1:] != [], what="the record")
    assert preparing.states() == [("recovered", "approval", None)]


def test_a_preparation_that_was_given_up_can_be_tried_again(
    preparing: PreparingProcess, simulator: Simulator, launch: Launch
) -> None:
    """`seb outbox retry` runs the program again, and then the VM is prepared."""
    preparing.ends_with(65)
    preparing.start()
    event = simulator.announce(an_event())
    preparing.bridge.wait_for_records(1, types="seb.event.scheduled")
    assert cli(launch, "prepare", event.event_id).code == 1
    preparing.ends_with(0)
    assert cli(launch, "outbox", "retry", "drain").code == 0
    eventually(lambda: preparing.states()[-1][0] == "prepared", what="the preparation")
    assert cli(launch, "prepare", event.event_id).code == 0


def test_a_recovery_that_was_given_up_is_tried_again(
    preparing: PreparingProcess, simulator: Simulator, launch: Launch
) -> None:
    """`seb outbox retry` runs the program for the end once more."""
    preparing.start(SEB_APPROVAL__RULES=RULE)
    event = simulator.announce(an_event())
    eventually(lambda: ("prepared", "approval", None) in preparing.states(), what="prepared")
    preparing.ends_with(65)
    simulator.end_event(event.event_id)
    eventually(lambda: preparing.states()[-1][0] == "failed", what="the end of the recovery")
    preparing.ends_with(0)
    runs = len(preparing.runs())
    assert cli(launch, "outbox", "retry", "drain").code == 0
    eventually(lambda: preparing.states()[-1][0] == "recovered", what="the recovery")
    assert preparing.runs()[runs:] == ["ended"]


def test_a_sink_that_begins_to_prepare_gets_the_end_of_what_it_was_told(
    preparing: PreparingProcess, simulator: Simulator
) -> None:
    """A VM that was drained by a plain sink must not stay drained."""
    preparing.start(SEB_SINK__DRAIN__PREPARES="false")
    event = simulator.announce(an_event())
    eventually(lambda: preparing.runs() == ["scheduled"], what="the program")
    assert preparing.bridge.stop() == 0
    preparing.start()
    simulator.end_event(event.event_id)
    eventually(lambda: preparing.runs()[-1:] == ["ended"], what="the end")


def test_a_sink_that_begins_to_prepare_again_gets_the_end_of_what_it_was_told(
    preparing: PreparingProcess, simulator: Simulator
) -> None:
    """It is the same if the sink prepared before it was a plain one."""
    preparing.start()
    assert preparing.bridge.stop() == 0
    preparing.start(SEB_SINK__DRAIN__PREPARES="false")
    event = simulator.announce(an_event())
    eventually(lambda: preparing.runs() == ["scheduled"], what="the program")
    assert preparing.bridge.stop() == 0
    preparing.start()
    simulator.end_event(event.event_id)
    eventually(lambda: preparing.runs()[-1:] == ["ended"], what="the end")


def test_a_sink_that_comes_back_gets_no_end_of_what_it_was_not_asked_about(
    preparing: PreparingProcess, simulator: Simulator, launch: Launch
) -> None:
    """Another one prepared for one run; neither was asked, so there is nothing to recover."""
    preparing.start()
    event = simulator.announce(an_event())
    preparing.bridge.wait_for_records(1, types="seb.event.scheduled")
    for name in ("OTHER", "DRAIN"):
        assert preparing.bridge.stop() == 0
        preparing.start(name=name)
    simulator.end_event(event.event_id)
    preparing.bridge.wait_for_records(1, types="seb.event.ended")
    eventually(lambda: not any(waiting(launch)), what="all deliveries")
    assert (preparing.runs(), preparing.states()) == ([], [])


@pytest.mark.parametrize("how", ["its recovery fails", "it is away", "its drain is cut"])
def test_a_sink_that_begins_to_prepare_gets_the_end_that_it_missed(
    preparing: PreparingProcess, simulator: Simulator, launch: Launch, how: str
) -> None:
    """A plain sink drained, and the end waits, or came while the sink was out of the settings; or
    the sink was killed within its drain.
    """
    plain = {"SEB_SINK__DRAIN__PREPARES": "false", "SEB_SINK__DRAIN__TYPES": '["seb.event.*"]'}
    if how == "its drain is cut":
        preparing.hold()
    preparing.start(**plain)
    event = simulator.announce(an_event())
    eventually(lambda: preparing.runs() == ["scheduled"], what="the program")
    if how == "its drain is cut":
        preparing.bridge.kill()
        preparing.go()
        preparing.start()
        simulator.end_event(event.event_id)
    else:
        eventually(lambda: not any(waiting(launch)), what="all deliveries")
        if how == "it is away":
            assert preparing.bridge.stop() == 0
            preparing.bridge = launch(SEB_SINK__STDOUT__FORMAT="json")
        else:
            preparing.ends_with(1)
        simulator.end_event(event.event_id)
        preparing.bridge.wait_for_records(1, types="seb.event.ended")
        assert preparing.bridge.stop() == 0
        preparing.ends_with(0)
        preparing.start()
    recovered = ("recovered", "deadline", None)
    eventually(lambda: preparing.states() == [recovered], what="the recovery")
    assert preparing.runs()[-1] == "ended"


def test_a_sink_that_prepares_no_more_gets_the_end_of_what_it_was_asked_about(
    preparing: PreparingProcess, simulator: Simulator, launch: Launch
) -> None:
    """The event ends while the sink is out of the settings. Once it prepares again, that is over:
    the console is told, and an event of the same id is another one.
    """
    preparing.start()
    event = simulator.announce(an_event())
    assert cli(launch, "prepare", event.event_id).code == 0
    assert preparing.bridge.stop() == 0
    without = launch(SEB_SINK__STDOUT__FORMAT="json")
    simulator.end_event(event.event_id)
    without.wait_for_records(1, types="seb.event.ended")
    assert without.stop() == 0
    preparing.start(SEB_SINK__DRAIN__PREPARES="false")
    eventually(lambda: preparing.runs() == ["scheduled", "ended"], what="the end")
    eventually(lambda: not any(waiting(launch)), what="all deliveries")
    assert preparing.bridge.stop() == 0
    preparing.start()
    eventually(lambda: preparing.states() == [("recovered", "command", None)], what="the record")
    assert preparing.runs() == ["scheduled", "ended"]


def test_two_sinks_that_prepare_are_refused(launch: Launch) -> None:
    """Only one can be waited for."""
    done = cli(
        launch,
        "config",
        "show",
        SEB_SINK__A__KIND="program",
        SEB_SINK__A__COMMAND="true",
        SEB_SINK__A__PREPARES="true",
        SEB_SINK__B__KIND="program",
        SEB_SINK__B__COMMAND="true",
        SEB_SINK__B__PREPARES="true",
    )
    assert done.code == 78
    assert "at most one sink prepares this VM" in done.err
