"""Fixtures of the tests of commands."""

from support.process.launch import launch
from support.process.seb_here import here

__all__ = ["here", "launch"]
