"""Delivers records to an MQTT broker. A refusal by the broker is always an error."""

from sinks.kinds.mqtt.sink import MqttSink

__all__ = ["MqttSink"]
