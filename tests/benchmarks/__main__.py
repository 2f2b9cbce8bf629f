"""`make bench`: every benchmark, one after the other; each ends by itself.

`python -m tests.benchmarks --only latency` runs one (or more: `--only latency --only idle`), and
`--page` only writes the page anew. The figures go to `docs/benchmarks.json`, and from there to
`docs/benchmarks.md` and the README.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from bridge.version import __version__  # noqa: E402  # where it is, the lines above say
from tests.benchmarks import measure, page  # noqa: E402


def main() -> None:
    """Measure what is asked for, print it, and write it down."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=page.BENCHMARKS, help="run this one")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page")
    asked = parser.parse_args()
    found = page.load()
    for name in [] if asked.page else asked.only or page.BENCHMARKS:
        module, begun = page.BENCHMARKS[name], time.monotonic()
        print(f"{module.TITLE} …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix=f"seb-bench-{name}-") as scratch:
            figures = module.measure(Path(scratch))
        found[name] = {
            "machine": measure.machine(),
            "version": __version__,
            "seconds": round(time.monotonic() - begun, 1),
            "figures": figures,
        }
        for each in module.figures(figures):
            ratio = "" if each.ratio is None else f"{each.ratio:.2f} x"
            verdict = {True: "", False: "NOT MET", None: ""}[each.is_met]
            print(f"  {each.what}: {each.ours} ({ratio} {each.limit or ''}) {verdict}", flush=True)
        page.write(found)  # after each: what is measured stays, whatever comes next
    page.write(found)


if __name__ == "__main__":
    main()
