"""What a console takes in, and how it answers while a fleet sends records.

Taking in: the console with its database against the library of the source, which only receives the
same records and reads their JSON. Both take the same backlog from the same broker or hub, in turns,
on the same processors. paho-mqtt is a client of its own with MQTT 5, QoS 1, a kept session, as many
messages in flight as the console asks for, and an acknowledgement by hand after each message was
read with `json.loads`; the rate is from its first message to its last. The console's rate is from
the first commit that is seen to the last. Answers: with 100,000
records of the past, while 170 heartbeats a second come in over MQTT, as from 10,000 VMs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.benchmarks import console_answers, console_intake
from tests.benchmarks.console_estimate import estimate
from tests.benchmarks.figures import Figure, Limit, bullets, ms, table

TITLE: Final = "The console"
OURS: Final = "the console"
MIN_RATES: Final[Mapping[str, int]] = {"sqlite": 2000, "postgresql": 1500}
"""Records a second, from MQTT, by database."""
MAX_ANSWER: Final = 100.0
"""Milliseconds, for 95 of 100 answers, with 10,000 VMs."""
MAX_STREAM: Final = 50.0
"""Milliseconds from publish to stream, median."""
MAX_MEMORY: Final = 256.0
"""MiB, with 10,000 VMs."""
LIBRARIES: Final = {
    "mqtt": ("MQTT", "paho-mqtt"),
    "webhook": ("200 VMs that post", "uvicorn"),
    "eventhub": ("Event Hubs", "azure-eventhub"),
}
_WHY_INTAKE: Final = (
    "the library stops at the JSON; the console checks each record, folds it into VM and event, "
    "stores it with its indexes, and acknowledges it after the commit"
)
DATABASES: Final = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}


def measure(
    scratch: Path,
    *,
    intake: Mapping[str, Any] | None = None,
    look: Mapping[str, Any] | None = None,
) -> Any:
    """Both parts; a part's arguments may be given, to measure less."""
    return {
        "intake": console_intake.measure(scratch / "intake", **(intake or {})),
        "look": console_answers.measure(scratch / "look", **(look or {})),
    }


def figures(found: Any) -> list[Figure]:
    """The figures that the page compares."""
    largest = max(found["look"], key=int)
    return [*_intake(found["intake"]), *_look(found["look"][largest], int(largest))]


def _intake(found: Mapping[str, Any]) -> Iterator[Figure]:
    for kind, each in found.items():
        source, library = LIBRARIES[kind]
        for name, database in DATABASES.items():
            if name not in each:
                continue
            yield Figure(
                what=f"{each['records']} records of {each['bytes']} bytes from {source} "
                f"into {database}",
                ours=f"{each[name]} records a second",
                peer=f"{each['bare']} with {library} alone",
                ratio=each[name] / each["bare"],
                limit=_least_rate(each[name], name) if kind == "mqtt" else None,
                why=_WHY_INTAKE,
            )


def _least_rate(measured: float, database: str) -> Limit:
    return Limit(measured=measured, unit="records a second", at_least=MIN_RATES[database])


def _look(found: Mapping[str, Any], vms: int) -> Iterator[Figure]:
    for name in found["answers"]:
        p95 = found["answers"][name]["p95"]
        yield Figure(
            what=f"{name} of {vms:,} VMs, 95 of 100 answers",
            ours=ms(p95),
            limit=Limit(measured=p95, unit="ms", at_most=MAX_ANSWER),
            why="the answer reads every VM, or every open event, from the database",
        )
    median = found["stream_ms"]["median"]
    yield Figure(
        what="an event is published \u2192 an open page's stream has it",
        ours=f"{ms(median)} median, {ms(found['stream_ms']['p95'])} p95",
        limit=Limit(measured=median, unit="ms", at_most=MAX_STREAM),
        why="a record is told after its commit, which waits for the disk",
    )
    yield Figure(
        what=f"resident memory with {vms:,} VMs",
        ours=f"{found['memory_mib']} MiB",
        limit=Limit(measured=found["memory_mib"], unit="MiB", at_most=MAX_MEMORY),
        why="about 85 MiB are libraries, and the database keeps pages of its file",
    )


def notes(found: Any) -> Sequence[str]:
    """The table by number of VMs, and what larger fleets need."""
    names = list(next(iter(found["look"].values()))["answers"])
    rows = [
        (
            f"{int(size):,}",
            f"{each['start_seconds']:.1f} s",
            *(
                f"{each['answers'][name]['median']:.0f} / {each['answers'][name]['p95']:.0f}"
                for name in names
            ),
            f"{each['stream_ms']['median']:.0f} / {each['stream_ms']['p95']:.0f}",
            f"{each['memory_mib']:.0f} MiB",
        )
        for size, each in found["look"].items()
    ]
    head = (
        "Milliseconds, median / 95th percentile, by number of VMs; start is from the start of the "
        "process to `/readyz`:\n"
    )
    return (
        head,
        table(("VMs", "start", *names, "publish to stream", "memory"), rows),
        "### On paper: 100,000 and a million VMs\n",
        bullets(estimate(found)),
    )
