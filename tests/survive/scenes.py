"""What happens to the cluster while its clients work, and what they saw of it."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.survive.azure import AzureEvent
from tests.survive.clients import load
from tests.survive.cluster import MEMBERS, Cluster, wait_for

FREEZE_SECONDS = 9.0
AWAY_SECONDS = 15.0
UNTOUCHED_NOTICE = 4.0
"""Nobody uses it: short, so that the whole takes half an hour."""
NOTICE = 600.0
"""As Azure gives it for a redeployment: enough for two members to go one after the other."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Something that Azure does to the cluster."""

    name: str
    """Of those on the page, as in `page.SCENES`."""
    play: Callable[["Play"], None]
    untouched: bool = True
    """Whether it differs from the others if nobody prepares."""
    by_group: bool = False
    """Whether the console says whose turn it is, and not a rule on each VM."""


class Play:
    """One scene in one cluster, with or without `seb`."""

    def __init__(self, cluster: Cluster, *, with_seb: bool) -> None:
        self.cluster = cluster
        self._notice = NOTICE if with_seb else UNTOUCHED_NOTICE
        self._lock = threading.Lock()
        self._away = 0
        self.most_away = 0
        self.approved: list[bool] = []

    def event(self, vm: int, event_type: str, away: Callable[[int], None], duration: float) -> None:
        """Play one event, from its notice to its end."""
        simulators = self.cluster.simulators
        event = AzureEvent(simulators, vm, event_type, duration=int(duration), notice=self._notice)
        self.approved.append(event.wait_until_started())
        with self._lock:
            self._away += 1
            self.most_away = max(self.most_away, self._away)
        away(vm)
        with self._lock:
            self._away -= 1
        event.end()

    def freeze(self, vm: int) -> None:
        """Its processes stand still."""
        machine = self.cluster.machines[vm]
        machine.freeze()
        time.sleep(FREEZE_SECONDS)
        machine.thaw()

    def redeploy(self, vm: int) -> None:
        """Its processes are killed, and it boots after a while."""
        machine = self.cluster.machines[vm]
        machine.kill()
        time.sleep(AWAY_SECONDS)
        machine.boot()


def freeze_leader(play: Play) -> None:
    """A freeze of the leader."""
    play.event(play.cluster.leader(), "Freeze", play.freeze, FREEZE_SECONDS)


def redeploy_leader(play: Play) -> None:
    """A redeployment of the leader."""
    play.event(play.cluster.leader(), "Redeploy", play.redeploy, -1)


def redeploy_two(play: Play) -> None:
    """Two redeployments, announced at the same moment."""
    leader = play.cluster.leader()
    vms = (leader, (leader + 1) % MEMBERS)
    threads = [
        threading.Thread(target=play.event, args=(vm, "Redeploy", play.redeploy, -1)) for vm in vms
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def without_console(play: Play) -> None:
    """The console is down from before the notice until after the end."""
    play.cluster.console.kill()
    redeploy_leader(play)
    play.cluster.console.start()


SCENES = (
    Scene("freeze", freeze_leader),
    Scene("redeploy", redeploy_leader),
    Scene("two", redeploy_two),
    Scene("console", without_console, untouched=False),
    Scene("group", redeploy_two, by_group=True),
)


def measure(cluster: Cluster, scene: Scene, *, with_seb: bool, **limits: float) -> dict[str, Any]:
    """Play it once; what the clients saw. The cluster is whole before and after. `limits` are
    further settings of the clients.
    """
    cluster.use_bridges(wanted=with_seb, by_group=scene.by_group and with_seb)
    wait_for(cluster.is_whole, what="a whole cluster")
    play = Play(cluster, with_seb=with_seb)
    with load({**cluster.client(), **limits}) as found:
        time.sleep(2)
        scene.play(play)
        settled = wait_for(cluster.is_whole, what="a whole cluster")
        time.sleep(1)
    fields = {
        "most_away": play.most_away,
        "approved": all(play.approved),
        "settled_s": round(settled, 1),
    }
    return {**found, **fields}
