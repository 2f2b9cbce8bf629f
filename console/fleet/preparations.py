"""Folds what VMs report about their preparations."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from console.fleet.batch import Changes, LoadedRows, ReporterKey
from console.fleet.limits import is_one_too_many
from console.fleet.values.report import LatestReport, ReportedPreparation
from console.fleet.values.vm import Vm
from console.records.incoming import IncomingRecord, PreparationContent
from wire.preparation import NONE, RECOVERED
from wire.record import BRIDGE_STORE_RESET

MAX_PREPARATIONS: Final = 1000
"""How many preparations of one VM are stored. Beyond that, the oldest ones from which it has
recovered are forgotten.
"""
OF_THE_EVENT: Final = ("event_changed", "unknown_event")
"""The reasons a bridge gives when a preparation failed because of the event, not its program."""


class PreparationFold:
    """The part of `Fold` that is about preparations."""

    def __init__(self, loaded: LoadedRows, changes: Changes) -> None:
        self._loaded = loaded
        self._changes = changes

    def apply(self, reported: ReportedPreparation, *, is_restored: bool = False) -> None:
        """Apply what a VM reports about its preparation, unless it has reported something newer."""
        before = self._loaded.preparations.get(
            ReporterKey(reported.content.event_id, reported.vm_id)
        )
        if reported.content.state == NONE:
            if (
                before is not None
                and before.time < reported.time
                and _is_lost(before.content, reported.content)
            ):
                # A document is no record: it has no sequence among those of the VM.
                lost = replace(before, sequence=0)
                self.keep(_lost(lost, reported.time))
            return
        if before is None and is_one_too_many(self._loaded, reported.vm_id, reported.content):
            return
        if before is not None:
            if self._is_older(reported, before, is_restored=is_restored):
                return
            if not reported.sequence and _is_same(before.content, reported.content):
                return  # the record says more than the state document
        reported = replace(reported, begun_sequence=_begun_sequence(reported, before))
        self.keep(reported, is_restored=is_restored)

    def begin_store(self, *, before: Vm | None, vm: Vm, record: IncomingRecord, at: float) -> None:
        """Change what a VM prepared before it got the store of this record. If the store's first
        record says that the former store was lost, this is the same VM: it is not prepared any
        more, and counts as away until it has recovered. That holds too as long as the first record
        has not come in. Otherwise the VM was made again: it has recovered. `at`: the time that it
        reports.
        """
        is_new = before is not None and before.stream not in (None, vm.stream)
        is_first = record.sequence == 1 and record.stream == vm.stream
        if not is_new and not is_first:
            return
        is_made_again = is_first and record.type != BRIDGE_STORE_RESET
        for (_, vm_id), reported in list(self._loaded.preparations.items()):
            # A state document of the new store has no sequence, and may have come in before this.
            is_before = bool(reported.sequence) or reported.time <= at
            is_earlier = reported.stream != vm.stream and is_before
            if vm_id == vm.vm_id and is_earlier and reported.content.state != RECOVERED:
                self.keep(_as_recovered(reported, at) if is_made_again else _lost(reported, at))

    def put_back_store(self, record: IncomingRecord, *, at: float) -> None:
        """Change what a VM reported at this place of its stream or at later ones, before its store
        was put back to an earlier copy, as this record shows: what it prepared after the copy was
        made counts for no state of its event any more. If the copy was made between the beginning
        of a preparation and its end, the VM has to recover once more. `at`: the time that it
        reports.
        """
        for (_, vm_id), reported in list(self._loaded.preparations.items()):
            is_undone = (
                vm_id == record.vm.vm_id
                and reported.stream == record.stream
                and reported.sequence >= record.sequence
                and reported.time < at
            )
            has_recovered = reported.content.state == RECOVERED
            if is_undone and not (has_recovered and reported.begun_sequence >= record.sequence):
                self.keep(_lost(_as_prepared(reported), reported.time))

    def keep(self, reported: ReportedPreparation, *, is_restored: bool = False) -> None:
        """Keep what a VM reports about its preparation. What it prepared for an ended event, or for
        one that no longer names it, does not count if the event comes back unchanged. That holds
        also if the record of the preparation comes in only then, unless the VM's store was put
        back.
        """
        key = ReporterKey(reported.content.event_id, reported.vm_id)
        latest = self._loaded.reports.get(key)
        is_past = latest is not None and (
            _is_past(latest) or (not is_restored and _is_of_earlier_stay(reported, latest))
        )
        if is_past:
            reported = replace(reported, content=replace(reported.content, fingerprint=""))
        if key not in self._loaded.preparations:
            self._forget_recovered(reported.vm_id)
        if self._loaded.preparations.get(key) != reported:
            self._loaded.preparations[key] = reported
            self._changes.preparations[key] = reported

    def _forget_recovered(self, vm_id: str) -> None:
        """Make room for one more preparation of a VM: forget the oldest ones from which it has
        recovered, those for events that it reports as pending last.
        """
        known = [key for key in self._loaded.preparations if key.vm_id == vm_id]
        if len(known) < MAX_PREPARATIONS:
            return
        recovered = [
            key for key in known if self._loaded.preparations[key].content.state == RECOVERED
        ]
        pending = {
            key
            for key in recovered
            if (latest := self._loaded.reports.get(key)) is not None
            and latest.report.state != "ended"
        }
        recovered.sort(key=lambda key: (key in pending, self._loaded.preparations[key].time))
        for key in recovered[: len(known) + 1 - MAX_PREPARATIONS]:
            del self._loaded.preparations[key]
            self._changes.preparations.pop(key, None)
            self._changes.past_preparations.add(key)

    def _is_older(
        self, reported: ReportedPreparation, before: ReportedPreparation, *, is_restored: bool
    ) -> bool:
        """Check whether a VM has reported something newer about its preparation. Two records are
        compared by their order; if one report is from a state document, by the VM's clock.
        """
        if reported.sequence and reported.stream == before.stream and before.sequence:
            is_later = is_restored and reported.time > before.time
            return reported.sequence <= before.sequence and not is_later
        return reported.time < before.time and not self._follows_document(reported, before)

    def _follows_document(
        self, reported: ReportedPreparation, document: ReportedPreparation
    ) -> bool:
        """Check whether a record says what a state document said that came in before it, or what
        came after that, although its time is earlier: the clock may have been set back since.

        It must come after the VM's newest record about the event, so it is of no earlier stay. That
        the VM has recovered comes after a document that showed the event only if the event is over
        by now.
        """
        latest = self._loaded.reports.get(ReporterKey(reported.content.event_id, reported.vm_id))
        if latest is None or not reported.stream == document.stream == latest.stream:
            return False
        if not 0 < latest.sequence < reported.sequence:
            return False
        if reported.content.state == RECOVERED:
            return _is_past(latest)
        return _is_same(document.content, reported.content)


def _begun_sequence(reported: ReportedPreparation, before: ReportedPreparation | None) -> int:
    """Return the sequence of the record by which a preparation began; `before`: what the VM had
    reported of the event.
    """
    goes_on = (
        before is not None
        and before.stream == reported.stream
        and (before.content.state != RECOVERED or reported.content.state == RECOVERED)
    )
    return before.begun_sequence if before is not None and goes_on else reported.sequence


def _as_prepared(reported: ReportedPreparation) -> ReportedPreparation:
    """Return the preparation as before the VM had recovered from it, if it has."""
    if reported.content.state != RECOVERED:
        return reported
    return replace(reported, content=replace(reported.content, state="prepared"))


def _as_recovered(reported: ReportedPreparation, time: float) -> ReportedPreparation:
    """Return the preparation as recovered, as the VM reports at `time`."""
    return replace(
        reported, content=replace(reported.content, state=RECOVERED, reason=None), time=time
    )


def _lost(reported: ReportedPreparation, time: float) -> ReportedPreparation:
    """Return the preparation as one that counts for no state of the event, and from which the VM
    has not recovered.
    """
    return replace(reported, content=replace(reported.content, fingerprint=""), time=time)


def _is_lost(before: PreparationContent, reported: PreparationContent) -> bool:
    """Check whether a VM had prepared for a state of an event, and now reports that it has not."""
    return before.fingerprint == reported.fingerprint and before.state in ("preparing", "prepared")


def _is_past(latest: LatestReport) -> bool:
    """Check whether a VM reports that an event is over, or does not name it any more."""
    return latest.report.state == "ended" or not latest.report.affects_this_vm


def _is_of_earlier_stay(reported: ReportedPreparation, latest: LatestReport) -> bool:
    """Check whether a VM reported a preparation before it announced the event as it is now: by the
    order of its records.
    """
    is_announced = latest.report.transition == "scheduled" and latest.stream == reported.stream
    return is_announced and 0 < reported.sequence < latest.sequence


def _is_same(one: PreparationContent, other: PreparationContent) -> bool:
    return (one.fingerprint, one.state) == (other.fingerprint, other.state)
