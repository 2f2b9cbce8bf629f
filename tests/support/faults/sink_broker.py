"""A bridge with one MQTT sink, and the broker that a test makes suffer: before it is killed, what
it holds is fetched and its sessions are saved, so that the bridge is not blamed for its loss.
"""

import os
import queue
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from support.eventually import eventually
from support.faults.many_sinks import ManySinks
from support.faults.oracle import Figures
from support.faults.sink_ends import variables
from support.mqtt.mosquitto import Mosquitto
from support.mqtt.subscriber import Subscriber
from support.patience import PATIENCE
from support.sinks.five_sinks import is_event


class BrokerAndBridge:
    """One broker, one subscriber, one bridge; a context manager that ends all of them."""

    broker: Mosquitto
    scene: ManySinks
    _seen: Subscriber

    def __init__(self, home: Path) -> None:
        self.home = home
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, *, extra: Sequence[str] = ()) -> Mosquitto:
        """A broker that lets everybody in, a subscriber, and a bridge that delivers; an event is
        near, so that it tries often.
        """
        made = Mosquitto(self.home / "broker", extra=extra)
        self.broker = self._stack.enter_context(made)
        self._seen = self._stack.enter_context(made.subscriber("seb/#"))
        env = variables("mqtt", {"host": made.host, "port": str(made.port)})
        self.scene = self._stack.enter_context(ManySinks(self.home, env))
        self.scene.be_near()
        self.wait_for_everything()
        return made

    @property
    def client_id(self) -> str:
        """By which the broker knows the bridge."""
        return f"seb-{self.scene.simulator.vm.vm_id}-mqtt"

    def freeze(self) -> None:
        """Let the broker stand still, its connections open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def save(self) -> None:
        """Fetch what the broker holds, and have it save its sessions, as it does each half hour."""
        self._seen.messages()
        database = self.broker.directory / "mosquitto.db"
        before = database.stat().st_mtime_ns if database.exists() else 0
        self._signal(signal.SIGUSR1)
        # It writes beside, and puts the file into its place once it is whole.
        eventually(
            lambda: database.exists() and database.stat().st_mtime_ns != before,
            what="the broker's save",
        )

    def _signal(self, number: int) -> None:
        assert self.broker.pid is not None
        os.kill(self.broker.pid, number)

    def wait_for_reason(self, part: str) -> None:
        """Wait until the sink is said to be down because of this."""
        self.scene.wait_for_trouble("mqtt", part)

    def wait_for_everything(self) -> None:
        """Wait until everything that IMDS has said is at every sink, or dead."""
        self.scene.wait_for_empty_outbox()

    def judge(self, case: str, *, rounds: int = 1) -> Figures:
        """The oracle's figures; the bridge is stopped for them."""
        return self.scene.judge(case, {"mqtt": self._received}, rounds=rounds)

    def _received(self) -> Sequence[bytes]:
        return [each.payload for each in self._seen.messages() if is_event(each.topic)]


class Intruder:
    """Another client with the bridge's client id: each throws the other out."""

    def __init__(self, broker: Mosquitto, client_id: str) -> None:
        self._ended: queue.Queue[object] = queue.Queue()
        self._connected: queue.Queue[object] = queue.Queue()
        self._client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=MQTTProtocolVersion.MQTTv5,
            reconnect_on_failure=False,
        )
        self._client.on_connect = lambda *_: self._connected.put(None)
        self._client.on_disconnect = lambda *_: self._ended.put(None)
        self._address = (broker.host, broker.port)

    def __enter__(self) -> Self:
        self._client.connect(*self._address)
        self._client.loop_start()
        self._connected.get(timeout=PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def wait_until_thrown_out(self) -> None:
        """Wait until the bridge has taken its session back. Raises `queue.Empty` after 20 s."""
        self._ended.get(timeout=PATIENCE)
