"""Every attack with a token that hypothesis can think of: none is effective, each has the one
reason that is right, and the token that nobody touched works afterwards.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.commands.approving import Court, full_court, scene
from support.commands.token_judge import Facts, reason_against
from support.commands.token_strategies import Attack
from support.commands.token_texts import ATTACKS
from support.documents.documents import FakeClock
from support.faults.oracle import Figures

from bridge.approval.trusted_keys import Trust
from bridge.approval.verification import MAX_COMMANDS, Rate, Situation, verify

Tell = Callable[[Figures], None]
MEMORY = Path("/dev/shm")
"""What is on disk is not the subject here, and each refusal is written down."""
UNANSWERED = {"too_large", "retained", "malformed", "unknown_key", "bad_signature"}
"""Reasons of what fails before the signature is known to be good; malformed may be both."""


class Besieged:
    """A court with an event of each kind, a used command, and a judge beside it."""

    def __init__(self, home: Path) -> None:
        self.court: Court = full_court(home)
        self.scene = scene(self.court)
        at = self.scene
        ping = at.signer.ping(at.vm_id, iat=at.now, nbf=at.now, exp=at.now + 9, jti="used")
        self.court.send(ping)
        assert self.court.story() == [("accepted", None)]
        events = (at.soon, at.elsewhere, at.begun, at.others)
        self.facts = Facts(
            signers=(at.signer, at.other, at.curve),
            vm_id=at.vm_id,
            events={each["data"]["event"]["eventId"].casefold(): each["data"] for each in events},
            used=frozenset({(at.signer.issuer, "used")}),
        )
        self.reasons: Counter[str] = Counter()
        self.good = 0
        self.answers = 0

    def suffer(self, attack: Attack, fraction: float) -> None:
        """One attack, that much after the beginning of the next second."""
        court = self.court
        now = court.clock.now().timestamp()
        court.clock.advance(court.seconds + 1 + fraction - now)
        token = attack.make(replace(self.scene, now=court.seconds))
        now = court.clock.now().timestamp()
        reason = reason_against(token, self.facts, now=now, retained=attack.retained)
        if reason is None:
            self.good += 1
            self.verify(token)
            return
        self.reasons[reason] += 1
        before, head = Counter(court.refused()), court.store.head
        court.send(token, retained=attack.retained)
        assert dict(Counter(court.refused()) - before) == {reason: 1}
        answers = court.story(after=head)
        self.answers += len(answers)
        assert answers in ([], [("rejected", reason)])
        assert answers == [] or reason not in UNANSWERED - {"malformed"}
        assert court.imds.posts == []

    def verify(self, token: bytes) -> None:
        """What the judge holds for good is a command, and is kept from being carried out."""
        verify(
            token,
            retained=False,
            trust=Trust(self.court.trust_file),
            situation=Situation(
                vm_id=self.facts.vm_id,
                now=self.court.clock.now(),
                known=self.court.current.known,
                used=lambda command: (command.issuer, command.jti) in self.facts.used,
            ),
            rate=Rate(MAX_COMMANDS, FakeClock().monotonic),
        )

    def finish(self) -> None:
        """The untouched token is good in spite of it all, and acts once."""
        court = self.court
        court.look()
        head = court.store.head
        token = court.signer.approve(self.scene.soon, now=court.seconds, jti="untouched")
        court.send(token)
        assert court.imds.posts == ["E-SOON"]
        court.send(token)
        court.look()
        assert court.imds.posts == ["E-SOON"]
        assert court.story(after=head) == [
            ("accepted", None),
            ("posted", None),
            ("rejected", "replayed"),
            ("confirmed", None),
        ]


def try_attacks(tries: int) -> Figures:
    """Make so many attacks; what became of them."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as home:
        besieged = Besieged(Path(home))

        @settings(max_examples=tries, deadline=None, suppress_health_check=list(HealthCheck))
        @given(ATTACKS, st.sampled_from([0.0, 0.0, 0.25, 0.75]))
        def attack(made: Attack, fraction: float) -> None:
            besieged.suffer(made, fraction)

        attack()
        besieged.finish()
        besieged.court.close()
    told = ", ".join(f"{count} {reason}" for reason, count in besieged.reasons.most_common())
    assert besieged.reasons.total() > tries / 2
    return Figures(
        case="commands: attacks",
        rounds=tries,
        documents=0,
        records=besieged.answers,
        repeated=0,
        dead=0,
        posts=0,
        more=f"refused: {told}; good by chance: {besieged.good}",
    )


def test_a_hundred_attacks(tell: Tell) -> None:
    """No attack is effective, and each is refused for its one reason."""
    tell(try_attacks(100))


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_a_thousand_attacks(tell: Tell) -> None:
    """The same, so often that rare reasons come up."""
    tell(try_attacks(1_000))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_attacks(tell: Tell) -> None:
    """The same ten thousand times, and every reason that one token can have comes up."""
    tell(try_attacks(10_000))
