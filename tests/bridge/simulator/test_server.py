"""The server of the simulator: where it listens, and how it ends."""

import errno
import socket
import threading
import time

import pytest
from support.imds.client import EVENTS, METADATA, ask, connect, send_request

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator


def test_stopping_leaves_no_thread_behind() -> None:
    """`stop` ends idle connections, a scenario and a pending approval."""
    before = set(threading.enumerate())
    with Simulator(approval_delay=60) as simulator:
        idle = connect(simulator.url)
        idle.request("GET", EVENTS, headers=METADATA)
        idle.getresponse().read()
        event = simulator.announce(SimulatedEvent())
        body = b'{"StartRequests":[{"EventId":"%s"}]}' % event.event_id.encode()
        ask(simulator.url, method="POST", body=body)
        simulator.play("live-migration")
        running = set(threading.enumerate()) - before
        begun = time.monotonic()
    took = time.monotonic() - begun
    idle.close()
    kinds = {"imds-listen", "imds-connection", "imds-scenario", "imds-timer"}
    assert kinds == {thread.name for thread in running}
    assert not any(thread.is_alive() for thread in running)
    assert took < 10


def test_a_port_in_use_is_an_error(imds_simulator: Simulator) -> None:
    """Two simulators cannot listen on one port, and the second one leaves nothing open."""
    port = int(imds_simulator.url.rpartition(":")[2])
    second = Simulator(port=port)
    with pytest.raises(OSError) as caught:  # each system has words of its own
        second.start()
    assert caught.value.errno == errno.EADDRINUSE
    assert ask(imds_simulator.url).status == 200


@pytest.mark.parametrize(
    ("host", "beyond", "message"),
    [
        ("192.0.2.1", False, "not a loopback address"),
        ("0.0.0.0", False, "not a loopback address"),
        ("169.254.169.254", False, "real metadata service"),
        ("169.254.169.254", True, "real metadata service"),
        ("::ffff:169.254.169.254", True, "real metadata service"),
        ("metadata.example", True, "not an IP address"),
    ],
)
def test_only_loopback_is_listened_on(host: str, beyond: bool, message: str) -> None:
    """The simulator listens on another address than loopback only if a person asked for it, and
    never on the real one.
    """
    with pytest.raises(ValueError, match=message):
        Simulator(host=host, beyond_loopback=beyond)


def test_an_answer_leaves_in_one_piece(imds_simulator: Simulator) -> None:
    """Head and body of an answer arrive with the first read, so that no delayed acknowledgement
    comes between them.
    """
    with send_request(imds_simulator.url) as raw:
        received = raw.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    assert body == imds_simulator.history[-1].body
    assert b"Content-Length: %d" % len(body) in head


def test_garbage_is_refused_in_json(imds_simulator: Simulator) -> None:
    """Bytes that are not HTTP are answered 400 with a JSON error, and the connection ends."""
    host, port = imds_simulator.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as raw:
        raw.sendall(b"GARBAGE\x00 !! \r\n\r\n")
        received = b"".join(iter(lambda: raw.recv(65536), b""))
    assert received.endswith(b'{"error": "Bad Request"}')


def test_many_pollers_at_once(imds_simulator: Simulator) -> None:
    """If twenty clients poll while documents change, each GET gets a whole document."""
    bodies: list[bytes] = []
    lock = threading.Lock()

    def poll() -> None:
        for _ in range(10):
            body = ask(imds_simulator.url).body
            with lock:
                bodies.append(body)

    pollers = [threading.Thread(target=poll) for _ in range(20)]
    for poller in pollers:
        poller.start()
    for _ in range(10):
        imds_simulator.announce(SimulatedEvent())
    for poller in pollers:
        poller.join()
    history = imds_simulator.history
    assert set(bodies) <= {document.body for document in history}
    assert {d.body: d.gets for d in history} == {d.body: bodies.count(d.body) for d in history}
