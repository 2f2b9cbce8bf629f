"""Composition and life cycle of one run of the console."""
