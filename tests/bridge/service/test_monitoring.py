"""What the service manager is told of a run."""

import pytest
from support.documents.documents import FakeClock

from bridge import system
from bridge.config.settings import Settings
from bridge.service.monitoring import Monitoring
from bridge.service.systemd import MARGIN_SECONDS


def test_after_a_day_asleep_the_watchdog_waits_for_the_first_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a suspension of more than a day the service manager waits as long as IMDS may take to
    answer, before any poll has ended.
    """
    told: list[str] = []

    def notify(lines: str, _: float) -> bool:
        told.append(lines)
        return True

    monkeypatch.setattr(system, "notify", notify)
    monkeypatch.setattr(system, "watchdog_seconds", lambda: 60.0)
    clock = FakeClock()
    monitoring = Monitoring(Settings(), [], clock)
    monitoring.liveness.beat(answered=True)
    clock.suspend(30 * 3600)
    monitoring.note_suspension()
    narrow, wide = (float(each.split("WATCHDOG_USEC=")[1]) / 1_000_000 for each in told)
    assert narrow == 60.0
    assert wide == 141.0 + MARGIN_SECONDS
