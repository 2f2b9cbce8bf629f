"""Sinks, the destinations of records. This package does not know Azure's IMDS."""
