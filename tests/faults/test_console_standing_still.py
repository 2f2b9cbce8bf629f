"""Two consoles, each with a line of its own to PostgreSQL, which goes silent, freezes or is cut at
random: nothing that was acknowledged is lost, nothing is told twice, and `/readyz` says the truth.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

import psycopg
import requests
from support.console.faulty_line import FaultyLine
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually
from support.faults.sizes import sizes
from support.postgresql import PostgreSql

from wire.record import Record

Tell = Callable[[str], None]
KNOWN_WITHIN = 10.0
"""Seconds until `/readyz` is 503."""
BACK_WITHIN = 20.0
"""Seconds from the return of the database until everything works."""
SLACK = 5.0
"""What a busy machine may add to both."""
_EVENTS_OF_ONE = 20
"""Of more, people are told later: the notices about one VM are bounded."""
_NUMBERS = count(1)


@dataclass
class Poster:
    """Bridges that post to one console, and try again until a record is acknowledged."""

    console: ConsoleProcess
    name: str
    acknowledged: set[str] = field(default_factory=set)
    events: set[str] = field(default_factory=set)
    """Whose end was acknowledged."""
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Events of which each begins and ends, one after the other."""
        vm = FakeVm(name=self.name)
        for number in count(1):
            event_id = f"{self.name}-{number}"
            if number % _EVENTS_OF_ONE == 1:
                vm = FakeVm(name=f"{self.name}-{number}")
            for transition in ("scheduled", "ended"):
                record = vm.event(event_id, transition=transition)
                while not self._posts(record):
                    if self.stop.wait(0.2):
                        return
                self.acknowledged.add(record.id)
            self.events.add(event_id)
            if self.stop.wait(0.05):
                return

    def _posts(self, record: Record) -> bool:
        try:
            return self.console.post(record).status_code == 204
        except requests.RequestException:
            return False


@dataclass
class WorstTimes:
    """How long it took, in the worst case."""

    known: float = 0.0
    back: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)


def is_ready(console: ConsoleProcess) -> bool:
    """What `/readyz` says; `/healthz` is fine in any case."""
    with requests.Session() as http:
        http.trust_env = False
        assert http.get(f"{console.url}/healthz", timeout=10).status_code == 200
        return http.get(f"{console.url}/readyz", timeout=10).status_code == 200


def broken(console: ConsoleProcess, line: FaultyLine, draw: Random, watch: WorstTimes) -> None:
    """One fault of one line, and its end."""
    fault = draw.choice(("forget", "silence", "freeze", "cut"))
    watch.faults[fault] += 1
    begun = time.monotonic()
    getattr(line, fault)()
    if fault != "forget":
        if draw.random() < 0.5:  # a short one need not be noticed
            time.sleep(draw.uniform(0.1, 4))
        else:
            within = KNOWN_WITHIN + SLACK
            eventually(lambda: not is_ready(console), what=f"503 after {fault}", timeout=within)
            watch.known = max(watch.known, time.monotonic() - begun)
            time.sleep(draw.uniform(0, 2))
        line.mend()
    begun = time.monotonic()
    eventually(lambda: works(console), what=f"work after {fault}", timeout=BACK_WITHIN + SLACK)
    watch.back = max(watch.back, time.monotonic() - begun)


def works(console: ConsoleProcess) -> bool:
    """Whether it is ready, takes a record, and answers."""
    vm = FakeVm(name=f"probe-{next(_NUMBERS)}")
    with requests.Session() as http:
        http.trust_env = False
        try:
            shown = http.get(f"{console.url}/api/v1/overview", timeout=20).status_code == 200
        except requests.RequestException:
            return False
    return shown and is_ready(console) and console.post(vm.heartbeat()).status_code == 204


@sizes("seconds", None, 60, 600)
def test_a_postgresql_that_stands_still_at_random(
    tmp_path: Path, postgresql: PostgreSql, tell: Tell, seconds: int
) -> None:
    """What both consoles acknowledged is there, and each end of an event is told once."""
    draw, watch = Random(seconds), WorstTimes()
    url = postgresql.database(f"standing_{next(_NUMBERS)}")
    file = tmp_path / "notices.jsonl"
    with ExitStack() as stack:
        pairs: list[tuple[ConsoleProcess, FaultyLine]] = []
        for name in ("one", "two"):
            line = stack.enter_context(FaultyLine(postgresql.port))
            directory = tmp_path / name
            directory.mkdir()
            if pairs:
                shutil.copy(tmp_path / "one" / "enroll.key", directory / "enroll.key")
            console = ConsoleProcess(
                directory,
                DATABASE=url.replace(f":{postgresql.port}/", f":{line.port}/"),
                SILENT_AFTER="3600",
                SINK__FILE__PATH=str(file),
            )
            pairs.append((stack.enter_context(console), line))
        begin_to_tell(pairs[0][0], file)
        posters = [Poster(each, f"web-{n}") for n, (each, _) in enumerate(pairs)]
        threads = [threading.Thread(target=each.run, daemon=True) for each in posters]
        for each in threads:
            each.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            broken(*draw.choice(pairs), draw, watch)
        for poster in posters:
            poster.stop.set()
        for each in threads:
            each.join(60)
        acknowledged = set().union(*(each.acknowledged for each in posters))
        ended = set().union(*(each.events for each in posters))
        assert acknowledged <= stored(url)
        # Whoever had claimed the sink when it lost its database keeps the claim for a minute.
        eventually(lambda: set(notices_of_ends(file)) >= ended, what="every end", timeout=180)
        twice = [event_id for event_id, times in notices_of_ends(file).items() if times > 1]
        assert twice == []
    tell(
        f"{sum(watch.faults.values())} faults of PostgreSQL in {seconds} s, {len(acknowledged)} "
        f"records acknowledged, {len(ended)} ends told once; 503 within {watch.known:.1f} s, works "
        f"within {watch.back:.1f} s"
    )


def begin_to_tell(console: ConsoleProcess, file: Path) -> None:
    """Wait for the first notice: what was over before the consoles looked is not told."""

    def tells() -> bool:
        vm = FakeVm(name=f"first-{next(_NUMBERS)}")
        for transition in ("scheduled", "ended"):
            console.post(vm.event(vm.name, transition=transition))
        return bool(notices_of_ends(file))

    eventually(tells, what="the first notice", timeout=60)


def stored(url: str) -> set[str]:
    """The ids of the records in the database."""
    with psycopg.connect(url) as connection:
        return {row[0] for row in connection.execute("SELECT id FROM record")}


def notices_of_ends(file: Path) -> Counter[str]:
    """How often the end of each event was told."""
    lines = file.read_text().splitlines() if file.exists() else []
    notices = [json.loads(line)["data"]["notice"] for line in lines]
    return Counter(each["key"] for each in notices if each["kind"] == "event-over")
