"""Runs one seed by hand, and prints its history.

Call it as `PYTHONPATH=.:tests python -m support.turn_world SEED [STEPS]`.
"""

import sys
import traceback

from support.turn_world.run import run

if __name__ == "__main__":
    result = run(*map(int, sys.argv[1:3]))
    print(result.history)
    if result.error is not None:
        traceback.print_exception(result.error)
        sys.exit(1)
