"""Attacks with tokens over a real broker: none reaches IMDS, and the token that nobody touched does
in spite of them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.commands.approval_stage import Stage
from support.commands.forgery import Scene
from support.commands.token_judge import Facts, reason_against
from support.commands.token_strategies import Attack
from support.commands.token_texts import ATTACKS
from support.faults.oracle import Figures
from support.process.bridge import BridgeProcess

Tell = Callable[[Figures], None]
PINGS = 3
AT_ONCE = 25
"""How many commands go out in a row: less than what the bridge lets wait."""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Broker, IMDS and control plane."""
    with Stage(tmp_path) as made:
        yield made


class Siege:
    """A bridge that is attacked over MQTT."""

    def __init__(self, stage: Stage, bridge: BridgeProcess) -> None:
        self.stage = stage
        self.bridge = bridge
        self.scene: Scene = stage.scene()
        at = self.scene
        events = (at.soon, at.elsewhere, at.begun, at.others)
        self.facts = Facts(
            signers=(at.signer, at.other, at.curve),
            vm_id=at.vm_id,
            events={each["data"]["event"]["eventId"].casefold(): each["data"] for each in events},
        )
        self.sent: Counter[str] = Counter()

    def attack(self, attack: Attack) -> None:
        """Send one, if it is bad now and will be when it arrives."""
        now = time.time()
        token = attack.make(replace(self.scene, now=int(now)))
        reason = reason_against(token, self.facts, now=now, retained=attack.retained)
        if reason in (None, "not_yet_valid"):
            return
        self.sent[reason] += 1
        self.stage.line.publish(self.scene.vm_id, token)

    def wait_until_heard(self) -> None:
        """Ping until there is an answer: what waits may be too much for one more."""
        for number in range(PINGS):
            jti = f"ping-{number}"
            self.stage.send(self.stage.signer.ping(self.scene.vm_id, jti=jti))
            with suppress(AssertionError):
                self.stage.line.wait_for_step(jti, "accepted")
                return
        raise AssertionError("no ping is answered")

    def finish(self) -> None:
        """Nothing was posted; the untouched token is good and acts."""
        stage = self.stage
        self.wait_until_heard()
        assert stage.simulator.approvals == []
        stage.send(stage.signer.approve(self.scene.soon, jti="untouched"))
        stage.line.wait_for_step("untouched", "confirmed")
        assert stage.effective() == [self.scene.soon["data"]["event"]["eventId"]]
        assert len(stage.simulator.approvals) == 1
        assert "Traceback" not in self.bridge.errors
        assert self.bridge.stop() == 0


def besiege(stage: Stage, volleys: int) -> Figures:
    """So many volleys; what was sent."""
    with stage.bridge() as bridge:
        bridge.wait_for_log("started")
        siege = Siege(stage, bridge)

        @settings(max_examples=volleys, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(ATTACKS, min_size=AT_ONCE, max_size=AT_ONCE))
        def volley(attacks: list[Attack]) -> None:
            for attack in attacks:
                siege.attack(replace(attack, retained=False))
            polls = stage.simulator.gets
            assert stage.simulator.wait_for_gets(polls + 1), "polls go on"

        volley()
        siege.finish()
    told = ", ".join(f"{count} {reason}" for reason, count in siege.sent.most_common())
    return Figures(
        case="commands: attacks over MQTT",
        rounds=siege.sent.total(),
        documents=0,
        records=len(stage.line.receipts()),
        repeated=0,
        dead=0,
        posts=len(stage.simulator.approvals),
        more=f"sent: {told}",
    )


def test_a_short_siege(stage: Stage, tell: Tell) -> None:
    """Some volleys."""
    tell(besiege(stage, 3))


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_a_siege(stage: Stage, tell: Tell) -> None:
    """Many volleys."""
    tell(besiege(stage, 40))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_long_siege(stage: Stage, tell: Tell) -> None:
    """Ten thousand."""
    tell(besiege(stage, 400))
