"""One machine and one page for the files of this directory, which run in the order of their names:
each step builds on those before it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.ground.doc_page import PageBlocks
from support.ground.nspawn import Machine, missing
from support.sinks.far_ends import FarEnds


@pytest.fixture(scope="package")
def machine() -> Iterator[Machine]:
    """A machine without the bridge."""
    if why := missing():
        pytest.skip(why)
    with Machine() as made:
        yield made


@pytest.fixture(scope="package")
def far(machine: Machine) -> FarEnds:
    """What the settings of the page name; to be made once the bridge is installed."""
    return FarEnds(machine)


@pytest.fixture(scope="package")
def page() -> PageBlocks:
    """The page, whose blocks are taken one after the other."""
    return PageBlocks("docs/linux.md")
