"""Decisions, from a person's request to the signed command and its end: two tables and their
workers.
"""
