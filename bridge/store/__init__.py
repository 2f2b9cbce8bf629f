"""The one SQLite file; it knows neither Azure nor what an event means."""
