"""What all fault cases share: `tell`, which shows the figures of a case at the end of the run."""

from collections.abc import Callable, Iterator

import pytest
from support.faults.oracle import Figures
from support.postgresql import PostgreSql, served


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[Figures | str], None]:
    """Show the figures of a case, or a line, once all cases are through; from any worker."""

    def keep(figures: Figures | str) -> None:
        record_property("faults", figures if isinstance(figures, str) else figures.line)

    return keep


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSql]:
    """One server for every case that wants a database of its own on it."""
    yield from served()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of figures."""
    lines = [
        str(value)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == "faults"
    ]
    if lines:
        terminalreporter.section("figures")
        for line in sorted(lines):
            terminalreporter.line(line)
