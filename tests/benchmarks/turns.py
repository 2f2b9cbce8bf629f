"""Whose turn it is in a large fleet: from the end of a turn to the next one, and what people see.

A real console on SQLite with 10,000 VMs in 500 groups, of which one VM each may be away, while 170
heartbeats a second come in over MQTT. 200 events wait. Then VMs come back, one after the other; the
time runs from the publication of the record that ends the turn until the API shows that the next
event of the group has its turn.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final

from support.console.decision_bench import made_key
from support.console.mqtt import MqttFleet
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually
from support.mqtt.mosquitto import Mosquitto

from console.config.settings import ConsoleSettings
from console.db.connection.opening import Database, database_url
from tests.benchmarks.console_answers import HEARTBEATS, store, summary, write_heartbeats
from tests.benchmarks.console_intake import make_console, program
from tests.benchmarks.figures import Figure, Limit, ms
from wire.record import Record

TITLE: Final = "Turns"
OURS: Final = "the console"
VMS: Final = 10_000
MEMBERS: Final = 20
"""VMs of a group."""
WAITING: Final = 200
BEHIND: Final = 4
"""Events that wait behind one turn."""
MAX_TURN: Final = 1000.0
MAX_ANSWER: Final = 100.0
"""Milliseconds, for 95 of 100."""
PATHS: Final = {"groups page": "/groups", "groups": "/api/v1/groups"}
_SOURCE: Final = "feed"
_GROUP: Final = {"name": "set", "by": ["scaleSet"], "approve": {}}
_BATCH: Final = 1000
_PAUSE: Final = 0.02
_WATCH: Final = 0.01
"""Seconds between two looks at the turn."""
_AWAY: Final = 1.0
"""For how many seconds the VM whose event has ended is not heard: it comes back from a reboot."""
_PATIENCE: Final = 60.0
_INTERVAL: Final = 600.0
"""Seconds between two heartbeats, as VMs say: a VM that sends none here is heard all the same."""


def measure(
    scratch: Path,
    *,
    vms: int = VMS,
    waiting: int = WAITING,
    rounds: int = 20,
    answers: int = 100,
) -> dict[str, Any]:
    """Milliseconds from turn to turn, and of the answers, by median and 95th percentile."""
    fleet = [
        FakeVm(name=f"vm-{number:05}", scale_set=f"set-{number // MEMBERS:03}", interval=_INTERVAL)
        for number in range(vms)
    ]
    crowded = waiting // BEHIND
    _fill(scratch / "console", fleet, crowded)
    key, _ = made_key(scratch / "keys")
    with Mosquitto(scratch / "broker") as broker:
        settings = {"HOST": broker.host, "PORT": str(broker.port)}
        console = make_console(scratch / "console", "mqtt", None, **settings)
        console.environ["SEB_CONSOLE_KEY"] = str(key)
        console.environ["SEB_CONSOLE_PULL"] = "true"
        console.environ["SEB_CONSOLE_GROUPS"] = json.dumps([_GROUP])
        console.start()
        try:
            eventually(lambda: "source_connected" in console.log, what="the connection", timeout=60)
            # Not of the VMs whose groups are measured: what was made before it is sent counts as
            # having waited at the VM, which may then be away.
            others = fleet[crowded * MEMBERS :]
            write_heartbeats(scratch / "beats", others, HEARTBEATS * 120)
            feed = ("mqtt_feed", str(broker.port), str(scratch / "beats"), str(HEARTBEATS))
            with program(*feed) as beating:
                eventually(
                    lambda: _number_waiting(console) == waiting,
                    what="the events that wait",
                    timeout=_PATIENCE,
                )
                found = {name: _ask(console, path, answers) for name, path in PATHS.items()}
                with MqttFleet(broker) as speaking, closing(_open_rows(console)) as rows:
                    turns = [
                        _next_turn(console, rows, speaking, fleet[number * MEMBERS], number)
                        for number in range(min(rounds, crowded))
                    ]
                beating.kill()
        finally:
            console.kill()
    return {
        "vms": vms,
        "groups": vms // MEMBERS,
        "waiting": waiting,
        "turn_ms": summary(turns),
        "answers": found,
    }


def _open_rows(console: ConsoleProcess) -> sqlite3.Connection:
    """Open the console's database to read its rows."""
    url = database_url(ConsoleSettings(state_dir=console.directory))
    return sqlite3.connect(f"file:{url.database}?mode=ro", uri=True)


def _fill(directory: Path, vms: Sequence[FakeVm], crowded: int) -> None:
    """A database in which every VM takes commands over MQTT, and some groups have events."""
    directory.mkdir(parents=True)
    database = Database(database_url(ConsoleSettings(state_dir=directory)))
    database.open()
    try:
        records = _records(vms, crowded)
        # Each is made when it is stored, or it seems to have waited at its VM.
        while batch := list(islice(records, _BATCH)):
            store(database, batch)
        with database.writing.begin() as connection:
            # As if the status of each said at the broker that it takes commands.
            connection.exec_driver_sql("UPDATE vm SET command_source = ?", (_SOURCE,))
    finally:
        database.close()


def _records(vms: Sequence[FakeVm], crowded: int) -> Iterator[Record]:
    yield from (vm.heartbeat() for vm in vms)
    now = datetime.now(UTC)
    for group in range(crowded):
        for place in range(BEHIND + 1):
            vm = vms[group * MEMBERS + place]
            soon = now + timedelta(hours=1, minutes=place)
            yield vm.event(_event_id(group, place), not_before=soon.isoformat(), now=now)


def _event_id(group: int, place: int) -> str:
    return f"E-{group:03}-{place}"


def _number_waiting(console: ConsoleProcess) -> int:
    return sum(len(each["waiting"]) for each in console.get("groups")["items"])


def _ask(console: ConsoleProcess, path: str, count: int) -> dict[str, float]:
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        console.http.get(console.url + path, timeout=30).raise_for_status()
        times.append(1000 * (time.perf_counter() - begun))
        time.sleep(_PAUSE)
    return summary(times)


def _next_turn(
    console: ConsoleProcess, rows: sqlite3.Connection, speaking: MqttFleet, vm: FakeVm, group: int
) -> float:
    """End the first event of a group; milliseconds from the next word of its VM until the second
    event has its turn, and the API has shown it.
    """
    first, second = (_event_id(group, place) for place in (0, 1))
    answered = _answer(console, speaking, vm, group, ())
    speaking.say(vm, vm.event(first, transition="ended"))
    _wait(console, rows, first, lambda state: state in ("away", "over"))
    # On a slow machine the console may have sent another command meanwhile.
    _answer(console, speaking, vm, group, answered)
    time.sleep(_AWAY)
    speaking.say(vm, vm.heartbeat())
    begun = time.monotonic()
    _wait(console, rows, second, lambda state: state != "waiting")
    if console.get(f"events/{second}")["turn"]["state"] == "waiting":
        raise ValueError(f"the API shows no turn of {second}")
    return 1000 * (time.monotonic() - begun)


def _answer(
    console: ConsoleProcess, speaking: MqttFleet, vm: FakeVm, group: int, answered: Collection[str]
) -> set[str]:
    """The VM answers the commands about the first event of a group, each once; the ids of all."""
    event_id = _event_id(group, 0)
    found = {each["jti"] for each in console.get(f"events/{event_id}")["tries"]}
    for jti in sorted(found.difference(answered)):
        speaking.say(vm, vm.receipt(event_id, "posted", jti=jti))
    return found


def _wait(
    console: ConsoleProcess, rows: sqlite3.Connection, event_id: str, wanted: Callable[[str], bool]
) -> None:
    """Wait until the turn of an event is in a wanted state. The database is asked and not the API:
    to answer ten times a second would cost the console more than what is measured.
    """
    deadline = time.monotonic() + _PATIENCE
    query = "SELECT state FROM turn WHERE event_id = ?"
    while not wanted(state := rows.execute(query, (event_id,)).fetchone()[0]):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{event_id} is {state} still\n{console.log}")
        time.sleep(_WATCH)


def figures(found: Any) -> list[Figure]:
    """The figures that the page compares."""
    size = f"{found['vms']:,} VMs in {found['groups']} groups, {found['waiting']} events wait"
    turn = found["turn_ms"]
    return [
        Figure(
            what=f"a turn ends \u2192 the next event has its turn; {size}; 95 of 100",
            ours=f"{ms(turn['median'])} median, {ms(turn['p95'])} p95",
            limit=Limit(measured=turn["p95"], unit="ms", at_most=MAX_TURN),
            why="a step follows from the groups and the open events, which are read again",
        ),
        *(
            Figure(
                what=f"{name} of {size}, 95 of 100 answers",
                ours=ms(each["p95"]),
                limit=Limit(measured=each["p95"], unit="ms", at_most=MAX_ANSWER),
                why="the answer reads the groups and every open event from the database",
            )
            for name, each in found["answers"].items()
        ),
    ]


def notes(found: Any) -> Sequence[str]:
    """Nothing more."""
    del found
    return ()
