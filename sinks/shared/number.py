"""An option whose value is a number in a range. click itself accepts NaN, which is in no range."""

from __future__ import annotations

import math
from typing import Any

import click


class Number(click.FloatRange):
    """A `click.FloatRange` that refuses NaN."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number; NaN is a usage error."""
        if math.isnan(number := float(super().convert(value, param, ctx))):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number
