"""A console, bridges and a broker that are killed at a chosen step of an approval."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import requests
from support.console.decision_bench import DecisionBench, decide
from support.console.holding_proxy import (
    HoldingProxy,
    Passing,
    Wanted,
    acknowledged,
    claims_of,
    command_of,
    committing,
    mqtt_packets,
    pieces,
    publish,
    receipt_of,
    saying,
    tokens_in,
)
from support.console.https_bench import HttpsBench
from support.console.process import ConsoleProcess
from support.eventually import eventually
from support.faults.strace import Injection

from bridge.simulator.approvals import Post


class KillableConsole(DecisionBench):
    """A bench on which each way to the broker, and to PostgreSQL, has a proxy."""

    def __init__(self, directory: Path, *, vms: int, seed: int) -> None:
        super().__init__(directory, vms=vms, heartbeat="10", on_approval=self._asked)
        self.draw = random.Random(seed)
        self.lines: dict[str, HoldingProxy] = {}
        self.commands: dict[str, dict[str, Any]] = {}
        """What each command says that a console has sent, by its jti."""
        self.on_post: Callable[[], None] = lambda: None
        """Called before a POST is answered."""

    def broker_port(self, name: str) -> int:
        """See `DecisionBench`: every way has a proxy."""
        if name not in self.lines:
            line = HoldingProxy(self.broker.port, split=mqtt_packets, watch=self._watch)
            self.lines[name] = self.stack.enter_context(line)
        return self.lines[name].port

    def database(self, name: str, url: str) -> str:
        """The URL of a database behind the proxy of a console."""
        port = url.rpartition(":")[2].partition("/")[0]
        proxy = HoldingProxy(int(port), split=pieces, watch=lambda _: None)
        self.lines[f"{name}-database"] = self.stack.enter_context(proxy)
        return url.replace(f":{port}/", f":{proxy.port}/")

    def _watch(self, passing: Passing) -> None:
        found = publish(passing.data)
        if found is not None and found.topic.endswith("/command"):
            self.commands[found.claims["jti"]] = found.claims

    def _asked(self, _: Post) -> None:
        self.on_post()


class KillableHttpsConsole(HttpsBench):
    """The same for one VM that has HTTPS alone."""

    def __init__(self, directory: Path, *, seed: int) -> None:
        super().__init__(directory, on_approval=self._asked)
        self.draw = random.Random(seed)
        self.lines: dict[str, HoldingProxy] = {}
        self.commands: dict[str, dict[str, Any]] = {}
        """As `KillableConsole`'s."""
        self.on_post: Callable[[], None] = lambda: None
        """As `KillableConsole`'s."""

    def console(self, name: str = "console", **settings: str) -> ConsoleProcess:
        """See `HttpsBench`: its bridge finds it behind a proxy."""
        made = super().console(name, **settings)
        proxy = HoldingProxy(made.port, split=pieces, watch=self._watch)
        self.lines[name] = self.stack.enter_context(proxy)
        made.environ["SEB_CONSOLE_PUBLIC_URL"] = f"http://127.0.0.1:{proxy.port}"
        return made

    def _watch(self, passing: Passing) -> None:
        for token in tokens_in(passing) if passing.answer else ():
            claims = claims_of(token)
            self.commands[claims["jti"]] = claims

    def _asked(self, _: Post) -> None:
        self.on_post()


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A console is asked to approve an event, and something is killed on the way."""

    scene: KillableConsole | KillableHttpsConsole
    console: ConsoleProcess
    """The one that is asked."""
    event: Mapping[str, Any]
    kill: Callable[[], None]
    others: Sequence[ConsoleProcess] = ()

    @property
    def name(self) -> str:
        """Of the console's proxies."""
        return self.console.directory.name

    @property
    def event_id(self) -> str:
        """Of the event."""
        return str(self.event["eventId"])

    def ask(self) -> threading.Thread:
        """Ask in a thread: the console may be killed before it answers."""

        def work() -> None:
            with suppress(requests.RequestException):
                decide(self.console, dict(self.event))

        asking = threading.Thread(target=work, daemon=True)
        asking.start()
        return asking

    def by(self, rule: str, path: Path, cause: Callable[[], object]) -> None:
        """The console is killed at a system call on a file."""
        assert self.console.process is not None
        with Injection(self.console.process.pid, rule, path=path):
            cause()
            self.console.process.wait()
        self.kill()


Step = Callable[[Death], None]
WRITE, SYNC, READ = "pwrite64", "fdatasync", "openat"


def at_any_time(death: Death) -> None:
    """Not later than an approval takes."""
    asking = death.ask()
    asking.join(death.scene.draw.uniform(0, 0.6))
    death.kill()
    asking.join(30)


def _held(wanted: Callable[[str], Wanted], *, by_vm: bool = False) -> Step:
    """As something is on its way between the broker and the console, or a VM."""

    def step(death: Death) -> None:
        lines = [
            line
            for name, line in death.scene.lines.items()
            if (name.startswith("bridge") if by_vm else name == death.name)
        ]
        for line in lines:
            line.hold(wanted(death.event_id))
        asking = death.ask()
        eventually(lambda: any(line.holds for line in lines), what="what is held", timeout=30)
        death.kill()
        for line in lines:
            line.drop()
        asking.join(30)

    return step


def _called(call: str, *, last: int = 1, key: bool = False) -> Step:
    """As the console is about to make a call on its database, or on its key."""

    def step(death: Death) -> None:
        nth = death.scene.draw.randint(1, last)
        wal = death.console.directory / "console.db-wal"
        path = death.scene.key if key else wal
        death.by(f"{call}:signal=KILL:when={nth}", path, death.ask)

    return step


def _called_at_the_end(call: str, *, last: int) -> Step:
    """As the console writes down the last receipt, or the end of the decision."""

    def step(death: Death) -> None:
        line, nth = death.scene.lines[death.name], death.scene.draw.randint(1, last)
        line.hold(receipt_of(death.event_id, "confirmed"))
        death.ask()
        line.wait()
        wal = death.console.directory / "console.db-wal"
        death.by(f"{call}:signal=KILL:when={nth}", wal, line.release)

    return step


def _committed_at_the_end(*, told: bool) -> Step:
    """As the end of the decision is committed to PostgreSQL: the console that does so is killed."""

    def step(death: Death) -> None:
        consoles = [death.console, *death.others]
        databases = {each: _database(death, each) for each in consoles}
        for database in databases.values():
            database.hold(committing(_parameter("over"), _parameter("confirmed"), told=told))
        asking = death.ask()
        held = _first(consoles, lambda each: databases[each].holds)
        held.kill()
        databases.pop(held).drop()
        for database in databases.values():
            database.release()
        asking.join(30)

    return step


def _first(
    consoles: Sequence[ConsoleProcess], holds: Callable[[ConsoleProcess], bool]
) -> ConsoleProcess:
    """The first one that holds."""
    eventually(lambda: any(map(holds, consoles)), what="what is held", timeout=30)
    return next(filter(holds, consoles))


def _parameter(text: str) -> bytes:
    """A parameter of a statement on its way to PostgreSQL."""
    return len(text).to_bytes(4) + text.encode()


def _in_database(wanted: Callable[[], Wanted]) -> Step:
    """As the decision is on its way to PostgreSQL."""

    def step(death: Death) -> None:
        database = _database(death, death.console)
        database.hold(wanted())
        asking = death.ask()
        database.wait()
        death.kill()
        database.drop()
        asking.join(30)

    return step


def _database(death: Death, console: ConsoleProcess) -> HoldingProxy:
    return death.scene.lines[f"{console.directory.name}-database"]


def _at_post(death: Death) -> None:
    """The VM has asked IMDS, which has obeyed and not yet answered."""
    done = threading.Event()

    def die() -> None:
        death.scene.on_post = lambda: None
        death.kill()
        done.set()

    death.scene.on_post = die
    asking = death.ask()
    assert done.wait(30), "no POST came"
    asking.join(30)


def _receipt(state: str) -> Callable[[str], Wanted]:
    return lambda event_id: receipt_of(event_id, state)


def _posting(event_id: str, state: str) -> Wanted:
    words = (event_id.encode(), b'"state":"%s"' % state.encode())
    return lambda passing: not passing.answer and all(word in passing.data for word in words)


def _told(event_id: str) -> Wanted:
    return acknowledged(command_of(event_id))


_ROW: Final = b'"action":"approve"'
_LINE: Final[Mapping[str, Step]] = {
    "row there, not signed": _called(READ, key=True),
    "signed, not sent": _held(command_of),
    "sent, not told": _held(_told),
    "accepted, receipt on its way": _held(_receipt("accepted")),
    "posted, receipt on its way": _held(_receipt("posted")),
    "confirmed, receipt on its way": _held(_receipt("confirmed")),
    "at any time": at_any_time,
}
SQLITE: Final[Mapping[str, Step]] = {
    "before the row": _called(WRITE),
    "row half written": _called(WRITE, last=8),
    "row not synced": _called(SYNC),
    **_LINE,
    "end half written": _called_at_the_end(WRITE, last=4),
    "end not synced": _called_at_the_end(SYNC, last=1),
}
POSTGRESQL: Final[Mapping[str, Step]] = {
    "before the row": _in_database(lambda: saying(_ROW)),
    "row not committed": _in_database(lambda: committing(_ROW, told=False)),
    "row committed, not told": _in_database(lambda: committing(_ROW, told=True)),
    **_LINE,
    "end not committed": _committed_at_the_end(told=False),
    "end committed, not told": _committed_at_the_end(told=True),
}
BRIDGE: Final[Mapping[str, Step]] = {
    "command on its way": _held(command_of, by_vm=True),
    "command taken, not told": _held(_told, by_vm=True),
    "accepted, receipt on its way": _held(_receipt("accepted"), by_vm=True),
    "posted, answer withheld": _at_post,
    "posted, receipt on its way": _held(_receipt("posted"), by_vm=True),
    "confirmed, receipt on its way": _held(_receipt("confirmed"), by_vm=True),
    "at any time": at_any_time,
}
BROKER: Final[Mapping[str, Step]] = {
    "command on its way to it": _held(command_of),
    "command there, console not told": _held(_told),
    "command there, not handed on": _held(command_of, by_vm=True),
    "accepted, receipt on its way to it": _held(_receipt("accepted"), by_vm=True),
    "accepted, receipt not handed on": _held(_receipt("accepted")),
    "posted, receipt not handed on": _held(_receipt("posted")),
    "confirmed, receipt on its way to it": _held(_receipt("confirmed"), by_vm=True),
    "confirmed, receipt not handed on": _held(_receipt("confirmed")),
    "at any time": at_any_time,
}
_HTTPS_LINE: Final[Mapping[str, Step]] = {
    "signed, answer on its way": _held(lambda _: lambda passing: bool(tokens_in(passing))),
    "accepted, receipt on its way": _held(lambda event: _posting(event, "accepted")),
    "confirmed, receipt on its way": _held(lambda event: _posting(event, "confirmed")),
    "at any time": at_any_time,
}
HTTPS_CONSOLE: Final[Mapping[str, Step]] = {
    "before the row": _called(WRITE),
    "row not synced": _called(SYNC),
    "row there, not signed": _called(READ, key=True),
    **_HTTPS_LINE,
}
HTTPS_BRIDGE: Final[Mapping[str, Step]] = {"posted, answer withheld": _at_post, **_HTTPS_LINE}
