"""The jobs on APScheduler, and the watch that keeps them running when a clock jumps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from apscheduler.events import EVENT_JOB_MAX_INSTANCES
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from bridge.clock import Clock

TICK_SECONDS: Final = 0.25
"""How often `Watch.tick` is to be called: a pause is measured too short by up to one tick."""
JUMP_SECONDS: Final = 1.0
"""The smallest difference between the clocks that counts as a jump, and the shortest pause."""
MAX_PAUSE_SECONDS: Final = 120.0
"""The longest pause: if the wall clock jumps further than this, it was set."""
_THREADS: Final = 4
"""More than there are jobs: two that hang on IMDS must not delay the heartbeat."""


class Every(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """Fires now and after each interval; APScheduler's trigger lists each time it missed."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._interval = timedelta(seconds=seconds)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        """Return the next time, as APScheduler requires."""
        return now if previous_fire_time is None else now + self._interval


class _Steady(BackgroundScheduler):  # type: ignore[misc]  # as above
    """A scheduler whose jobs never wait for a time that a wrong clock gave, even if `Watch` saw no
    jump.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        super().__init__(
            timezone="UTC",
            executors={"default": ThreadPoolExecutor(_THREADS)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )

    def _process_jobs(self) -> float | None:
        """Start what is due; return the seconds until the next job. APScheduler calls it."""
        jobs = self.get_jobs()
        now = self._clock.now()
        for job in jobs:
            if (job.next_run_time - now).total_seconds() > job.trigger.seconds:
                job.modify(next_run_time=now)
        waiting: float | None = super()._process_jobs()
        # It reads the clock twice, and the clock may be set in between.
        return waiting and min([waiting, *(job.trigger.seconds for job in jobs)])


class Scheduler:
    """The jobs of a run. A job that is still running when it is due again is skipped."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.skipped = 0
        """How often a job was due while it was still running."""
        self._scheduler = _Steady(clock)
        self._scheduler.add_listener(self._count_skip, EVENT_JOB_MAX_INSTANCES)

    def every(
        self, seconds: float, job: Callable[[], object], *, first: float = 0.0
    ) -> Callable[[], None]:
        """Run the job after `first` seconds, and then every `seconds`; return a function that
        removes it.
        """
        added = self._scheduler.add_job(
            job, trigger=Every(seconds), next_run_time=self._clock.now() + timedelta(seconds=first)
        )
        remove: Callable[[], None] = added.remove
        return remove

    def start(self) -> None:
        """Start the scheduler's threads."""
        self._scheduler.start()

    def stop(self) -> None:
        """Start nothing more; a job that is running is left to end."""
        self._scheduler.shutdown(wait=False)

    def run_now(self) -> None:
        """Run every job now, because their times were computed before the clock jumped."""
        for job in self._scheduler.get_jobs():
            job.modify(next_run_time=self._clock.now())

    def _count_skip(self, _event: Any) -> None:
        self.skipped += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """The jump, the pause and the suspension between two ticks, each in seconds, 0.0 for none."""

    jump: float = 0.0
    """How far the wall clock was set."""
    pause: float = 0.0
    """How long this machine stood still without knowing it: the tick is late, or the wall clock was
    set forward afterwards.
    """
    suspended: float = 0.0
    """How long the kernel had suspended this machine."""


class Watch:
    """Compares the clocks with each other, a few times a second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall = clock.now()
        self._monotonic = clock.monotonic()
        self._suspended = clock.suspended()

    def tick(self) -> Tick:
        """Return the jump, the pause and the suspension since the last tick."""
        wall = self._clock.now()
        monotonic = self._clock.monotonic()
        suspended = self._clock.suspended()
        elapsed = monotonic - self._monotonic
        asleep = suspended - self._suspended
        asleep = asleep if asleep >= JUMP_SECONDS else 0.0
        jump = (wall - self._wall).total_seconds() - elapsed - asleep
        self._wall = wall
        self._monotonic = monotonic
        self._suspended = suspended
        late = elapsed - TICK_SECONDS
        pause = late if late >= JUMP_SECONDS else 0.0
        if JUMP_SECONDS <= jump <= MAX_PAUSE_SECONDS:
            pause += jump
        jump = jump if abs(jump) >= JUMP_SECONDS else 0.0
        return Tick(jump=jump, pause=pause, suspended=asleep)
