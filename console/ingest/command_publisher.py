"""Publishes commands over the connection with which an MQTT source is read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from paho.mqtt.client import Client
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from console.ingest.state import SourceState
from sinks.kinds.mqtt.messages import Message
from sinks.kinds.mqtt.properties import publish_properties
from sinks.kinds.mqtt.reason_codes import FIRST_FAILURE, reason
from sinks.kinds.mqtt.settings import Protocol

_SUCCESS: Final = MQTTErrorCode.MQTT_ERR_SUCCESS
AnswerCallback = Callable[[str | None], None]


class CommandPublisher:
    """Publishes at QoS 1 while its source is connected. The source hands in its client with `use`,
    before each connection.
    """

    def __init__(self, state: SourceState, *, protocol: Protocol) -> None:
        self._state = state
        self._protocol = protocol
        self._client: Client | None = None
        self._lock = threading.Lock()
        """Guards the attributes below: commands are sent on other threads than the client's."""
        self._expected: dict[int, AnswerCallback] = {}
        """The callback for the acknowledgement of a published message, by packet id."""
        self._answers: dict[int, str | None] = {}
        """Acknowledgements by packet id; one may come before its callback is set."""

    @property
    def name(self) -> str:
        """The source's name."""
        return self._state.name

    def use(self, client: Client) -> None:
        """Publish with this client from now on; no acknowledgement of an earlier one comes."""
        with self._lock:
            self._expected.clear()
            self._answers.clear()
            self._client = client
        client.on_publish = self._on_publish

    def publish(self, message: Message, on_answer: AnswerCallback) -> bool:
        """Publish at QoS 1; return False without a connection. May be called from any thread, and
        never waits.

        `on_answer` is called, on the client's thread or this one, with None once the broker has the
        message, or with the reason for which it refuses it. It is not called if the connection is
        lost before that.
        """
        client = self._client
        if client is None or not self._state.is_connected:
            return False
        properties = publish_properties(message) if self._protocol == "5" else None
        sent = client.publish(message.topic, message.payload, 1, properties=properties)
        if sent.rc != _SUCCESS:
            return False
        with self._lock:
            self._expected[sent.mid] = on_answer
        self._settle(sent.mid)
        return True

    def _on_publish(
        self,
        _client: Client,
        _data: Any,
        mid: int,
        code: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        with self._lock:
            self._answers[mid] = str(reason(code.value)) if code.value >= FIRST_FAILURE else None
        self._settle(mid)

    def _settle(self, mid: int) -> None:
        """Call the callback of a packet id once its acknowledgement is here."""
        with self._lock:
            if mid not in self._expected or mid not in self._answers:
                return
            on_answer = self._expected.pop(mid)
            reason = self._answers.pop(mid)
        on_answer(reason)
