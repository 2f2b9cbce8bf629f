"""Sinks, the destinations of records; this package knows nothing of Azure's IMDS."""
