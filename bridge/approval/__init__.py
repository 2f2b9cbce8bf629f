"""Decides whether an event is approved (by a rule, a signed command or a person), and
does so once.
"""
