"""docs/rollout.md, "Without internet": the wheelhouse on a machine that has no network at all.
`make dist` comes first.
"""

from __future__ import annotations

import pytest
from support.ground.doc_page import PageBlocks
from support.ground.nspawn import HOME, Machine, missing
from support.ground.packages import NAME, made

pytestmark = pytest.mark.timeout(600)


def test_it_installs_without_a_network() -> None:
    """With the Python of the system, from the archive alone; the command works."""
    archive = made(f"{NAME}-*-wheelhouse-linux.tar.gz")
    if why := missing():
        pytest.skip(why)
    page = PageBlocks("docs/rollout.md", by="tests/ground/test_wheelhouse.py")
    with Machine() as machine:
        name = f"{NAME}-0.2.0-wheelhouse-linux.tar.gz"
        machine.file(f"{HOME}/{name}").write_bytes(archive.read_bytes())
        machine.run(f"cd {HOME}\n" + page.take("Without internet"), timeout=500)
        assert "0.2.0" in machine.run("/opt/seb-0.2.0/bin/seb version")
    assert page.left() == []
