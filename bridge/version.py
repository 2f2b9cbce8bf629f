"""The version, in its own module so that `seb version` imports nothing else."""

__version__ = "0.2.0"
