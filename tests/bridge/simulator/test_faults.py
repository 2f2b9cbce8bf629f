"""The faults that the simulator can play."""

import time
from contextlib import ExitStack, suppress
from http.client import HTTPException

import pytest
from support.eventually import eventually
from support.imds.client import ask, connect, send_request

from bridge.simulator.faults import (
    FAULT_NAMES,
    DripBody,
    DripHeaders,
    Endless,
    Fault,
    Huge,
    RefusedFault,
    Silence,
    Slow,
    StatusFault,
    parse_fault,
)
from bridge.simulator.simulator import Simulator


def test_too_many_requests_say_when_to_come_back(imds_simulator: Simulator) -> None:
    """The fault of too many requests is answered 429 with Retry-After."""
    imds_simulator.fault(StatusFault(429, retry_after=7))
    reply = ask(imds_simulator.url)
    assert (reply.status, reply.headers["Retry-After"]) == (429, "7")


def test_a_client_that_gave_up_was_not_served(imds_simulator: Simulator) -> None:
    """A document that is ready only after its client has gone does not count as served."""
    imds_simulator.fault(Slow(0.3))
    send_request(imds_simulator.url).close()
    assert imds_simulator.wait_for_gets(1)
    assert not imds_simulator.wait_until_served(timeout=0.5)


def test_a_refused_connection(imds_simulator: Simulator) -> None:
    """The fault cuts open connections and refuses new ones until it is healed; the port stays the
    same.
    """
    kept = connect(imds_simulator.url)
    kept.connect()
    imds_simulator.fault(RefusedFault(seconds=None))
    with pytest.raises((ConnectionError, HTTPException)):  # noqa: PT012
        kept.request("GET", "/")
        kept.getresponse()
    kept.close()
    with pytest.raises(ConnectionRefusedError):
        ask(imds_simulator.url)
    imds_simulator.heal()
    assert ask(imds_simulator.url).status == 200


def test_a_refused_connection_heals_of_itself(imds_simulator: Simulator) -> None:
    """After its seconds the fault ends, and the same port listens again."""
    imds_simulator.fault(RefusedFault(seconds=0.05))

    def answers() -> bool:
        with suppress(ConnectionRefusedError):
            return ask(imds_simulator.url).status == 200
        return False

    eventually(answers, what="an answer")


def test_faults_queue_up(imds_simulator: Simulator) -> None:
    """Each fault lasts for its number of GETs, then the next one comes, and after the last one
    answers are right.
    """
    imds_simulator.fault(StatusFault(500), times=2)
    imds_simulator.fault(StatusFault(503))
    assert [ask(imds_simulator.url).status for _ in range(4)] == [500, 500, 503, 200]


@pytest.mark.parametrize(
    "fault",
    [Slow(60), DripBody(1), DripHeaders(1), Endless(), Silence(), Huge(500), RefusedFault(60)],
    ids=lambda fault: type(fault).__name__,
)
def test_stopping_ends_every_fault_at_once(fault: Fault) -> None:
    """A stop waits for no fault, even if a client reads nothing."""
    with Simulator() as simulator, ExitStack() as clients:
        simulator.fault(fault)
        if not isinstance(fault, RefusedFault):
            clients.enter_context(send_request(simulator.url))
            assert simulator.wait_for_gets(1)
        begun = time.monotonic()
        simulator.stop()
        took = time.monotonic() - begun
    assert took < 10


@pytest.mark.parametrize("name", FAULT_NAMES)
def test_every_fault_has_a_name(name: str) -> None:
    """Each name on the command line makes a fault without an argument."""
    assert isinstance(parse_fault(name), Fault)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("slow=3", Slow(3)),
        ("429=9", StatusFault(429, retry_after=9)),
        ("huge=2", Huge(2)),
        ("drip=0.2", DripBody(0.2)),
        ("refused=1", RefusedFault(1)),
        ("503", StatusFault(503)),
    ],
)
def test_a_fault_takes_an_argument(text: str, expected: Fault) -> None:
    """`NAME=ARGUMENT` sets the seconds, or the MiB."""
    assert expected == parse_fault(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slwo", "try slow"),
        ("503=1", "takes no argument"),
        ("slow=x", "as in slow=5"),
        ("slow=nan", "as in slow=5"),
        ("slow=-1", "as in slow=5"),
        ("slow=1e9", "as in slow=5"),
    ],
)
def test_a_wrong_fault_says_what_is_right(text: str, message: str) -> None:
    """The error names the nearest fault, or shows how its argument is written."""
    with pytest.raises(ValueError, match=message):
        parse_fault(text)
