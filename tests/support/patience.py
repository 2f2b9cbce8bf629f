"""How long a test waits for what is sure to come, before it fails."""

from typing import Final

PATIENCE: Final = 60.0
"""Seconds. A busy machine is slow, and so is Wine when it starts a program; a test that passes does
not wait so long.
"""
