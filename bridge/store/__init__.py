"""The one SQLite file; it knows neither Azure nor the meaning of an event."""
