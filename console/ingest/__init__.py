"""Intake: the sources, and the one writer that commits what they receive."""
