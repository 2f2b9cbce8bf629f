"""An MQTT broker as a destination: a connection that never hides a refusal."""

from sinks.mqtt.sink import MqttSink

__all__ = ["MqttSink"]
