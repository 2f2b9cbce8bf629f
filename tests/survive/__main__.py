"""`make survive`: real services, with clients at work, through what Azure does to their VMs.

`python -m tests.survive --service etcd --scene freeze` plays one of them; REPEAT=3 plays each three
times. The figures go to `docs/survival.json`, and from there to `docs/survival.md`.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from docs import survival_page as page  # noqa: E402
from tests.benchmarks import measure  # noqa: E402  # where it is, the lines above say
from tests.survive import scenes  # noqa: E402
from tests.survive.cluster import Cluster  # noqa: E402
from tests.survive.services import SERVICES  # noqa: E402

BUSY = 1.0
"""Load average at the start: above it, other work disturbs the figures, and the page says so."""


def main() -> None:
    """Play what is asked for, print it, and write it down."""
    parser = argparse.ArgumentParser(prog="python -m tests.survive", description=__doc__)
    parser.add_argument("--service", action="append", choices=SERVICES)
    parser.add_argument("--scene", action="append", choices=[each.name for each in scenes.SCENES])
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is ended
    repeat = int(os.environ.get("REPEAT", "1"))
    played = [each for each in scenes.SCENES if each.name in (asked.scene or page.SCENES)]
    busy = os.getloadavg()[0] > BUSY
    missed: list[str] = []
    for name in asked.service or SERVICES:
        print(f"{SERVICES[name].TITLE} \u2026", file=sys.stderr, flush=True)
        if why := SERVICES[name].missing():
            print(f"not played: {why}", file=sys.stderr, flush=True)
            continue
        begun = time.monotonic()
        with SERVICES[name]() as cluster:
            figures = play(cluster, played, repeat)
            if not asked.scene:  # a part of them would be no page
                found = page.load()  # another lane may have written meanwhile
                found[name] = {
                    "title": cluster.TITLE,
                    "versions": cluster.versions(),
                    "machine": measure.machine(),
                    "day": datetime.now(UTC).date().isoformat(),
                    "busy": busy,
                    "note": cluster.NOTE,
                    "scenes": figures,
                }
                page.write({key: found[key] for key in SERVICES if key in found})
                missed += page.missed({name: found[name]})
        print(page.table(figures), flush=True)
        print(f"It took {time.monotonic() - begun:.0f} s.", file=sys.stderr, flush=True)
        shutil.rmtree(cluster.directory, ignore_errors=True)
    print("".join(f"NOT MET: {each}\n" for each in missed), end="")


def play(
    cluster: Cluster, played: Sequence[scenes.Scene], repeat: int
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Every scene so often, untouched and with `seb` in turns; what was seen, by scene."""
    figures: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for _ in range(repeat):
        for scene in played:
            for how in ("untouched", "seb") if scene.untouched else ("seb",):
                seen = scenes.measure(cluster, scene, with_seb=how == "seb")
                figures.setdefault(scene.name, {}).setdefault(how, []).append(seen)
                print(f"  {scene.name}, {how}: {seen}", file=sys.stderr, flush=True)
    return figures


if __name__ == "__main__":
    main()
