"""What the tests of commands share."""

from support.process.launch import launch
from support.process.seb_here import here

__all__ = ["here", "launch"]
