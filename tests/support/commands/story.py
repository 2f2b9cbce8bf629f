"""What became of commands, as their receipts and IMDS tell it; and what must hold of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from support.commands.approving import Court

FINAL = ("failed", "confirmed")


@dataclass(frozen=True)
class Issued:
    """A token that the control plane has signed."""

    jti: str
    token: bytes
    time: int
    event: str
    fingerprint: str


@dataclass
class Story:
    """What is known of the commands of one bridge, over all its stores."""

    issued: list[Issued] = field(default_factory=list)
    states: dict[str, list[str]] = field(default_factory=dict)
    """The receipts of each jti that was accepted, in the present store."""
    receipts: int = 0
    effects: dict[str, set[str]] = field(default_factory=dict)
    """By event that IMDS has started: the commands that may have done it."""
    _head: int = 0
    _posts: int = 0

    def begin_anew(self) -> None:
        """The store is lost, and with it what was accepted."""
        self.states, self._head = {}, 0

    def check(self, court: Court) -> None:
        """Each step of an approval is told once and in order, and each POST has its cause."""
        new = court.receipts(after=self._head)
        self.receipts += len(new)
        self._attribute(court, new)
        for receipt in new:
            if receipt["state"] != "rejected":
                self._follow(court, receipt)
        self._head = court.store.head
        for event in court.imds.posts[self._posts :]:
            assert (event, court.known(event).fingerprint) in self._approved(), "its very state"
        self._posts = len(court.imds.posts)
        assert len(court.imds.effective) == len(set(court.imds.effective))

    def unfinished(self) -> list[str]:
        """The commands that were accepted and have no end, or more than one."""
        return [
            jti
            for jti, told in self.states.items()
            if len([each for each in told if each in FINAL]) != 1
        ]

    def _attribute(self, court: Court, new: list[Mapping[str, Any]]) -> None:
        """Who may have had the effects that are new."""
        accepted = {*self.states, *(each["jti"] for each in new if each["state"] == "accepted")}
        for event in court.imds.effective[len(self.effects) :]:
            of_event = {each.jti for each in self.issued if each.event == event}
            self.effects[event] = of_event & accepted

    def _follow(self, court: Court, receipt: Mapping[str, Any]) -> None:
        """One more step of a command."""
        state, jti = receipt["state"], receipt["jti"]
        told = self.states[jti]
        if state == "accepted":
            assert told == []
        elif state == "posted":
            assert told == ["accepted"]
        else:
            assert state in FINAL
            assert told in (["accepted"], ["accepted", "posted"])
            self._end(court, receipt)
        told.append(state)

    def _end(self, court: Court, receipt: Mapping[str, Any]) -> None:
        """Whose end is told to be a failure has had no effect, as far as anybody can know."""
        event, reason = receipt["evt"], receipt["reason"]
        assert (receipt["state"] == "failed") == (reason is not None)
        if reason == "event_changed":
            assert court.known(event).event.event_status == "Scheduled"
        if reason == "imds_unreachable":
            assert self.effects.get(event) != {receipt["jti"]}

    def _approved(self) -> set[tuple[str, str]]:
        """Event and fingerprint of every command that was accepted."""
        accepted = [each for each in self.issued if self.states.get(each.jti)]
        return {(each.event, each.fingerprint) for each in accepted}
