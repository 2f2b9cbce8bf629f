"""The messages to the service manager, line by line."""

import pytest

from bridge.service.systemd import MARGIN_SECONDS, Watchdog


class Manager:
    """A service manager that keeps its messages, or does not respond."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.waited = 0.0
        """Seconds that what was said last may wait for it."""
        self.stands_still = False

    def __call__(self, state: str, seconds: float) -> bool:
        self.waited = seconds
        if not self.stands_still:
            self.told.append(state)
        return not self.stands_still


@pytest.fixture
def manager() -> Manager:
    """A stand-in for systemd."""
    return Manager()


def test_ready_feeds_too(manager: Manager) -> None:
    """The message READY also sets the watchdog's limit, which begins then."""
    Watchdog(manager, limit=60.0).ready("waiting for IMDS", allowance=6.0)
    assert manager.told == ["READY=1\nSTATUS=waiting for IMDS\nWATCHDOG=1\nWATCHDOG_USEC=60000000"]


def test_polls_that_are_quick_keep_the_units_own_limit(manager: Manager) -> None:
    """With quick polls the unit's own limit is sent once, and not with each poll."""
    watchdog = Watchdog(manager, limit=60.0)
    for _ in range(3):
        watchdog.feed(6.0)
    assert manager.told == ["WATCHDOG=1\nWATCHDOG_USEC=60000000", "WATCHDOG=1", "WATCHDOG=1"]


def test_a_long_first_answer_widens_the_limit_until_it_came(manager: Manager) -> None:
    """The limit is longer until the first answer came, which may take two minutes, and shorter
    afterwards.
    """
    watchdog = Watchdog(manager, limit=60.0)
    watchdog.ready("waiting for IMDS", allowance=131.0)
    watchdog.feed(131.0)
    watchdog.feed(6.0)
    watchdog.feed(6.0)
    wide, narrow = int((131.0 + MARGIN_SECONDS) * 1_000_000), 60_000_000
    assert [told.split("\n")[-1] for told in manager.told] == [
        f"WATCHDOG_USEC={wide}",
        "WATCHDOG=1",
        f"WATCHDOG_USEC={narrow}",
        "WATCHDOG=1",
    ]


def test_a_vm_that_stands_still_is_no_hang(manager: Manager) -> None:
    """The limit leaves room for the pause of a live migration, also if the allowance is just below
    it.
    """
    Watchdog(manager, limit=60.0).feed(45.0)
    assert manager.told == ["WATCHDOG=1\nWATCHDOG_USEC=75000000"]


def test_a_new_run_in_the_same_process_sends_its_own_limit(manager: Manager) -> None:
    """A new run in the same process sends its own limit, in place of a longer one of the run
    before.
    """
    Watchdog(manager, limit=60.0).ready("one", allowance=131.0)
    Watchdog(manager, limit=60.0).ready("two", allowance=6.0)
    assert [told.split("\n")[-1] for told in manager.told] == [
        "WATCHDOG_USEC=161000000",
        "WATCHDOG_USEC=60000000",
    ]


def test_without_a_watchdog_a_poll_sends_nothing(manager: Manager) -> None:
    """Without a watchdog in the unit no limit is sent, because WATCHDOG_USEC would turn one on."""
    watchdog = Watchdog(manager, limit=None)
    watchdog.ready("up", allowance=131.0)
    watchdog.feed(131.0)
    watchdog.stopping()
    assert manager.told == ["READY=1\nSTATUS=up", "STOPPING=1"]


def test_a_status_is_one_line_and_said_once(manager: Manager) -> None:
    """A status is sent as one line, and only if it has changed: a line end in an error must not
    become a command for systemd.
    """
    watchdog = Watchdog(manager, limit=None)
    watchdog.ready("up", allowance=1.0)
    for text in ("up", "IMDS:\nSTOPPING=1", "IMDS:\nSTOPPING=1", "up"):
        watchdog.status(text)
    assert manager.told == ["READY=1\nSTATUS=up", "STATUS=IMDS: STOPPING=1", "STATUS=up"]


def test_a_poll_does_not_wait_for_a_manager_that_stands_still(manager: Manager) -> None:
    """A poll does not wait for a manager that does not respond; the next poll repeats the message.
    READY and STOPPING wait a little.
    """
    watchdog = Watchdog(manager, limit=60.0)
    watchdog.ready("up", allowance=131.0)
    assert manager.waited > 0
    manager.stands_still = True
    watchdog.feed(6.0)
    assert manager.waited == 0
    manager.stands_still = False
    watchdog.feed(6.0)
    assert manager.told[1:] == ["WATCHDOG=1\nWATCHDOG_USEC=60000000"]
    watchdog.stopping()
    assert manager.waited > 0
