"""A hub that does not answer, or answers badly, at each step of AMQP, under a running bridge."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.amqp.server import EventHubServer, HubFault
from support.faults.many_sinks import ManySinks, unchanged
from support.faults.oracle import Figures
from support.faults.sink_ends import SpoiledEnd, SpoiledEnds

Tell = Callable[[Figures], None]
OTHER = "healthy"
WAITED_FOR = "no answer"


class Hubs:
    """A bridge with one sink for each way in which a hub misbehaves, and one for a good hub."""

    def __init__(self, stack: ExitStack, home: Path) -> None:
        self._stack = stack
        self._home = home
        self._made = stack.enter_context(SpoiledEnds(home))
        self.ends: dict[str, SpoiledEnd] = {}
        self.servers: dict[str, EventHubServer] = {}

    def start(self, *names: str) -> ManySinks:
        """A hub of each name, and a bridge that delivers to all of them."""
        for name in (OTHER, *names):
            self.ends[name] = self._made.eventhub(name)
            self.servers[name] = self._made.hubs[-1]
        env = {name: told for end in self.ends.values() for name, told in end.env.items()}
        scene = self._stack.enter_context(ManySinks(self._home, env))
        scene.be_near()
        scene.wait_for_empty_outbox()
        return scene

    def received(self) -> dict[str, Callable[[], list[bytes]]]:
        """What every hub has, for the oracle."""
        return {name: end.received for name, end in self.ends.items()}

    def heal(self) -> None:
        """No hub misbehaves any more; what was swallowed stays swallowed."""
        for server in self.servers.values():
            server.heal()


@pytest.fixture
def hubs(tmp_path: Path) -> Iterator[Hubs]:
    """Nothing runs yet; everything is ended with the test."""
    with ExitStack() as stack:
        made = Hubs(stack, tmp_path)
        yield made
        assert {name: server.bugs for name, server in made.servers.items() if server.bugs} == {}


@pytest.mark.faults
def test_what_a_hub_never_answers(hubs: Hubs, tell: Tell) -> None:
    """An answer that never comes holds up nobody else, and costs no thread once it is over."""
    never = {
        "no_ack": HubFault.NO_ACK,
        "lost_ack": HubFault.LOST_ACK,
        "release": HubFault.RELEASE,
        "no_attach": HubFault.NO_ATTACH,
        "no_cbs": HubFault.NO_CBS,
        "silent": HubFault.SILENT,
        "no_management": HubFault.NO_MANAGEMENT,
    }
    scene = hubs.start(*never)
    usage = scene.usage()
    others = {OTHER: hubs.ends[OTHER].proxy}
    before = scene.delays(others)
    for name, fault in never.items():
        hubs.servers[name].misbehave(fault)
        # The faults of a beginning are met by those who begin anew.
        hubs.servers[name].stop()
        hubs.servers[name].start()
    during = scene.delays(others)
    for name in never:
        if name != "no_management":
            assert hubs.servers[name].misbehaved.wait(30), name
            scene.wait_for_trouble(name, WAITED_FOR)
    at_last = scene.delays(others)
    hubs.heal()
    for each in (during, at_last):
        unchanged(before, each)
    scene.wait_for_empty_outbox()
    more = f"others x{max(at_last.ratios(before).values()):.2f}, {scene.wait_for_usage(usage)}"
    tell(scene.judge("hub: no answer", hubs.received(), rounds=len(never), more=more))
