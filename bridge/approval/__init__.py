"""Decides whether an event is approved (rule, signed command, person), and carries it out once."""
