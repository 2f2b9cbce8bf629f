"""Where records come from: MQTT, Event Hubs, signed webhooks. Each is acknowledged after commit."""
