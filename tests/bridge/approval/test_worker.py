"""The thread that carries out commands and rules, one after the other."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from support.store_helpers import AN_APPROVAL

from bridge.approval import worker as module
from bridge.approval.worker import WAITING, ApprovalWorker
from bridge.store.approvals import Act, Approval
from bridge.store.database import StoreError
from sinks.base import CommandMessage
from wire.command import MAX_TOKEN_BYTES

PATIENCE = 10.0


class NotedCalls:
    """A stand-in that notes its calls in order; each kind can be made to do something first."""

    def __init__(self) -> None:
        self.done: queue.Queue[str] = queue.Queue()
        self.before: dict[str, Callable[[], object]] = {}
        self.sizes: list[int] = []
        self.requests: list[str] = []
        """What the next steps send."""
        self.deadline: float | None = None
        """Seconds until the VM is to be prepared unasked."""
        self.prepared: queue.Queue[None] = queue.Queue()
        """An entry for each time that the VM was to be prepared."""

    def command(self, message: CommandMessage) -> None:
        self.sizes.append(len(message.token))
        name = message.token[:20].decode()
        self._do(name)
        message.on_settled()

    def note_poll(self) -> None:
        self._do("look")

    def prepare(self) -> None:
        self.prepared.put(None)
        self.before.get("prepare", lambda: None)()

    def seconds_to_prepare(self) -> float | None:
        return self.deadline

    def act_once(self) -> bool:
        if not self.requests:
            return False
        self._do(self.requests.pop(0))
        return True

    def local(
        self,
        event_id: str,
        *,
        user: str,
        fingerprint: str | None = None,
        person_reason: str | None = None,
        act: Act = "approve",
    ) -> Approval:
        self._do(f"{user}: {event_id}")
        return AN_APPROVAL

    def _do(self, name: str) -> None:
        self.before.get(name, lambda: None)()
        self.done.put(name)

    def next(self, count: int = 1) -> list[str]:
        return [self.done.get(timeout=PATIENCE) for _ in range(count)]


class WorkerWithGate:
    """A worker, its stand-in, and a gate that can hold it."""

    def __init__(self, stack: ExitStack) -> None:
        self.approvals = NotedCalls()
        self.approval_worker = ApprovalWorker(self.approvals)  # type: ignore[arg-type]  # it answers as one
        self.gate = threading.Event()
        self.reached = threading.Event()
        self.settled: list[str] = []
        stack.callback(self.approval_worker.stop, PATIENCE)
        stack.callback(self.gate.set)

    def begin(self) -> None:
        """Start the worker, and wait until it has polled once."""
        self.start()
        self.approval_worker.note_poll()
        assert self.approvals.next() == ["look"]

    def start(self) -> None:
        """Start the worker with a confirmed identity."""
        self.approval_worker.start()
        self.approval_worker.confirm()

    def hold(self, name: str = "held") -> None:
        """Keep the worker busy with a command until the gate opens."""

        def wait() -> None:
            self.reached.set()
            assert self.gate.wait(PATIENCE)

        self.approvals.before[name] = wait
        assert self.send(name)
        assert self.reached.wait(PATIENCE)

    def send(self, name: str, **how: Any) -> bool:
        """Hand in a command."""
        return self.approval_worker.command(
            CommandMessage(
                token=name.encode(),
                channel="mqtt",
                on_settled=lambda: self.settled.append(name),
                **how,
            )
        )


@pytest.fixture
def scene() -> Iterator[WorkerWithGate]:
    """A worker that has not begun."""
    with ExitStack() as stack:
        yield WorkerWithGate(stack)


def test_one_thing_is_done_after_the_other(scene: WorkerWithGate) -> None:
    """Commands are carried out and settled in the order in which they came."""
    scene.begin()
    assert all(scene.send(name) for name in ("a", "b", "c"))
    assert scene.approvals.next(3) == ["a", "b", "c"]
    scene.approval_worker.stop(PATIENCE)
    assert scene.settled == ["a", "b", "c"]


def test_commands_wait_for_the_first_poll(scene: WorkerWithGate) -> None:
    """Commands wait for the first poll, because they may be about events that the bridge has not
    seen.
    """
    scene.start()
    assert scene.send("a")
    scene.approval_worker.note_poll()
    assert scene.approvals.next(2) == ["look", "a"]


def test_commands_do_not_wait_for_it_for_ever(
    scene: WorkerWithGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If IMDS does not answer, commands are verified after a time, and pings answered."""
    monkeypatch.setattr(module, "FIRST_POLL_SECONDS", 0.05)
    scene.start()
    assert scene.send("a")
    assert scene.approvals.next() == ["a"]


def test_a_flood_is_turned_away(scene: WorkerWithGate) -> None:
    """A limited number of commands wait, and there is room again as soon as one is done."""
    scene.begin()
    scene.hold()
    # The one that is being carried out still has its place: it may have to be done again.
    assert sum(scene.send(str(number)) for number in range(10 * WAITING)) == WAITING - 1
    scene.gate.set()
    scene.approvals.next(WAITING)
    assert scene.send("later")
    assert scene.approvals.next() == ["later"]


def test_looks_and_people_go_before_a_flood(scene: WorkerWithGate) -> None:
    """A full queue of commands delays neither a rule nor a person."""
    scene.begin()
    scene.hold()
    for number in range(WAITING):
        scene.send(str(number))
    answers: queue.Queue[Approval] = queue.Queue()
    person = threading.Thread(
        target=lambda: answers.put(
            scene.approval_worker.local("E-1", user="anna", seconds=PATIENCE)
        )
    )
    person.start()
    while not scene.approval_worker._people:
        pass
    scene.approval_worker.note_poll()
    scene.approval_worker.note_poll()
    scene.gate.set()
    assert scene.approvals.next(4) == ["held", "anna: E-1", "look", "0"]
    assert answers.get(timeout=PATIENCE) == AN_APPROVAL
    person.join(PATIENCE)


def test_requests_that_hang_starve_neither_commands_nor_people(scene: WorkerWithGate) -> None:
    """Between two requests that hang, waiting commands and people are served."""
    scene.approvals.requests = ["first", "second", "third"]

    def hang() -> None:
        scene.reached.set()
        assert scene.gate.wait(PATIENCE)

    scene.approvals.before["first"] = hang
    scene.begin()
    assert scene.reached.wait(PATIENCE)
    assert scene.send("a")
    assert scene.send("b")
    scene.approval_worker.note_poll()
    scene.gate.set()
    assert scene.approvals.next(6) == ["first", "look", "a", "b", "second", "third"]


def test_a_flood_of_commands_starves_no_request(scene: WorkerWithGate) -> None:
    """A round takes only the commands that waited at its beginning, so that requests are sent."""
    scene.approvals.before["again"] = lambda: scene.send("again")
    scene.begin()
    scene.approvals.requests = ["first", "second"]
    assert scene.send("again")
    done = scene.approvals.next(8)
    assert done[:4] == ["again", "first", "again", "second"]
    assert set(done[4:]) == {"again"}


def test_slow_commands_hold_up_nobody_else_for_long() -> None:
    """If each command waits for a slow trust file, a round verifies one: polls, people and
    deadlines come between.
    """
    approvals = NotedCalls()
    now = 0.0

    def wait_for_file() -> None:
        nonlocal now
        now += 1.9

    approval_worker = ApprovalWorker(
        approvals,  # type: ignore[arg-type]  # it answers as one
        monotonic=lambda: now,
    )
    approval_worker.confirm()
    for name in ("a", "b"):
        approvals.before[name] = wait_for_file
        message = CommandMessage(token=name.encode(), channel="mqtt", on_settled=lambda: None)
        assert approval_worker.command(message)
    approval_worker.run_once()
    approval_worker.note_poll()
    approval_worker.run_once()
    assert approvals.next(3) == ["a", "look", "b"]
    assert not approval_worker.has_work


@pytest.mark.parametrize("error", [StoreError("the disk is full"), RuntimeError("a bug")])
def test_a_step_that_fails_is_not_tried_at_once(scene: WorkerWithGate, error: Exception) -> None:
    """A step that fails is tried again with the next poll, and not in a loop."""
    scene.begin()

    def fail() -> None:
        scene.approvals.done.put("failed")
        raise error

    scene.approvals.requests = ["bad", "good"]
    scene.approvals.before["bad"] = fail
    scene.approval_worker.note_poll()
    assert scene.approvals.next(2) == ["look", "failed"]
    scene.approval_worker.note_poll()
    assert scene.approvals.next(2) == ["look", "good"]


def test_a_poll_that_failed_lets_no_command_go_first(scene: WorkerWithGate) -> None:
    """After a failed first poll, commands wait on, and open approvals are followed."""
    scene.start()
    assert scene.send("a")
    scene.approval_worker.note_poll(answered=False)
    assert scene.approvals.next() == ["look"]
    scene.approval_worker.note_poll()
    assert scene.approvals.next(2) == ["look", "a"]


def test_a_large_message_is_not_kept_whole(scene: WorkerWithGate) -> None:
    """Of a large message only the bytes are kept that are needed to refuse it."""
    scene.begin()
    assert scene.send("x" * (1 << 20))
    scene.approvals.next()
    assert scene.approvals.sizes == [MAX_TOKEN_BYTES + 1]


def test_a_command_that_cannot_be_stored_is_tried_again(scene: WorkerWithGate) -> None:
    """A command that cannot be stored stays the first, and is settled once it is stored."""
    scene.begin()
    failures = [StoreError("the disk is full")] * 2

    def fail() -> None:
        if failures:
            raise failures.pop()

    scene.approvals.before["a"] = fail
    assert scene.send("a")
    assert scene.send("b")
    done = []
    while done[-1:] != ["b"]:
        scene.approval_worker.note_poll()
        done += scene.approvals.next()
    assert [name for name in done if name != "look"] == ["a", "b"]
    scene.approval_worker.stop(PATIENCE)
    assert scene.settled == ["a", "b"]


def test_a_command_that_finds_a_bug_is_settled(
    scene: WorkerWithGate, caplog: pytest.LogCaptureFixture
) -> None:
    """A command that raises an unexpected error is settled, and the thread works on."""
    scene.begin()
    scene.approvals.before["a"] = lambda: 1 / 0
    assert scene.send("a")
    assert scene.send("b")
    assert scene.approvals.next() == ["b"]
    assert scene.settled[:1] == ["a"]
    assert "approval_bug" in [getattr(each, "action", "") for each in caplog.records]


@pytest.mark.parametrize("error", [StoreError("the disk is full"), RuntimeError("a bug")])
def test_a_look_that_fails_is_not_the_last(scene: WorkerWithGate, error: Exception) -> None:
    """After a failed round the next one is made."""
    scene.begin()
    failures = [error]

    def fail() -> None:
        if failures:
            scene.reached.set()
            raise failures.pop()

    scene.approvals.before["look"] = fail
    scene.approval_worker.note_poll()
    assert scene.reached.wait(PATIENCE)
    scene.approval_worker.note_poll()
    assert scene.approvals.next() == ["look"]


@pytest.mark.parametrize("error", [LookupError("unknown_event"), StoreError("the disk is full")])
def test_a_person_gets_the_error(scene: WorkerWithGate, error: Exception) -> None:
    """The error reaches the person who asked."""
    scene.begin()

    def fail() -> None:
        raise error

    scene.approvals.before["anna: E-1"] = fail
    with pytest.raises(type(error), match=str(error)):
        scene.approval_worker.local("E-1", user="anna", seconds=PATIENCE)


def test_a_person_who_no_longer_waits_gets_nothing_done(scene: WorkerWithGate) -> None:
    """A request that could not begin in time is not carried out later."""
    scene.begin()
    scene.hold()
    with pytest.raises(TimeoutError, match="nothing was done"):
        scene.approval_worker.local("E-1", user="anna", seconds=0.01)
    assert scene.send("b")
    scene.gate.set()
    assert scene.approvals.next(2) == ["held", "b"]


def test_a_person_learns_that_it_is_under_way(scene: WorkerWithGate) -> None:
    """A request that has begun is reported as under way, and not as undone."""
    scene.begin()
    scene.approvals.before["anna: E-1"] = lambda: scene.gate.wait(PATIENCE)
    with pytest.raises(TimeoutError, match="it is under way"):
        scene.approval_worker.local("E-1", user="anna", seconds=1.0)


def test_a_stop_settles_nothing_that_was_not_done(scene: WorkerWithGate) -> None:
    """At the end, commands that still wait are not settled, so that their channel keeps them."""
    scene.begin()
    scene.hold()
    assert scene.send("b")
    stopping = threading.Thread(target=scene.approval_worker.stop, args=(PATIENCE,))
    stopping.start()
    while not scene.approval_worker._stopping:
        pass
    assert not scene.send("c")
    scene.gate.set()
    stopping.join(PATIENCE)
    assert scene.settled == ["held"]
    assert not scene.approval_worker._thread.is_alive()


def test_a_stop_does_not_wait_for_ever(scene: WorkerWithGate) -> None:
    """A hanging request delays the end no longer than allowed."""
    scene.begin()
    scene.hold()
    scene.approval_worker.stop(0.01)
    assert scene.approval_worker._thread.is_alive()


def test_before_the_identity_is_confirmed_nothing_is_carried_out(scene: WorkerWithGate) -> None:
    """Until the identity is confirmed a person is asked to wait, and commands wait; the VM is
    prepared nevertheless.
    """
    assert scene.send("early")
    scene.approval_worker.start()
    scene.approval_worker.note_poll()
    scene.approvals.prepared.get(timeout=PATIENCE)
    with pytest.raises(LookupError, match="not confirmed by IMDS yet"):
        scene.approval_worker.local("E-1", user="anna", seconds=PATIENCE)
    assert (scene.approvals.done.empty(), scene.settled) == (True, [])
    scene.approval_worker.confirm()
    assert scene.approvals.next(2) == ["look", "early"]
    scene.approval_worker.stop(PATIENCE)
    assert scene.settled == ["early"]


def test_a_deadline_needs_no_poll(scene: WorkerWithGate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The VM is prepared at its deadline although a poll hangs or is late."""
    monkeypatch.setattr(module, "FIRST_POLL_SECONDS", 0.05)
    scene.approvals.before["prepare"] = lambda: setattr(scene.approvals, "deadline", None)
    scene.approvals.deadline = 0.0
    scene.approval_worker.start()
    scene.approvals.prepared.get(timeout=PATIENCE)


def test_a_deadline_that_cannot_be_stored_is_tried_again(
    scene: WorkerWithGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deadline that cannot be stored is tried again without a poll, and not in a loop."""
    monkeypatch.setattr(module, "FIRST_POLL_SECONDS", 0.05)
    monkeypatch.setattr(module, "DEADLINE_SECONDS", 0.05)

    def fail() -> None:
        raise StoreError("the disk is full")

    scene.approvals.before["prepare"] = fail
    scene.approvals.deadline = 0.0
    scene.approval_worker.start()
    for _ in range(3):
        scene.approvals.prepared.get(timeout=PATIENCE)
    assert scene.approvals.prepared.qsize() < 3
