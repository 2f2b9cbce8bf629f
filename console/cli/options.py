"""What the ranges of click let through and no command can use."""

from __future__ import annotations

import math

import click


def a_number(context: click.Context, option: click.Parameter, value: float) -> float:
    """The value, unless it is "nan", which no range refuses: then a usage error."""
    if math.isnan(value):
        raise click.BadParameter("this is not a number", context, option)
    return value
