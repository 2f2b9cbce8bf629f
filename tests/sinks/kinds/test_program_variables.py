"""The sink that runs a program: the variables that the program gets."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sinks.kinds.program import ProgramSink
from sinks.kinds.program.settings import ProgramSettings
from sinks.kinds.program.variables import LEFT_OUT, VARIABLES, environment
from sinks.samples import sample_bridge_record
from sinks.testing import sample_context, sample_record
from wire.event import EVENT_FIELDS
from wire.record import EVENT_ENDED, Record

SECRETS = {
    "SEB_SINK__MQTT__PASSWORD": "broker-secret",
    "seb_sink__hook__secret": "hook-secret",
    "Seb_Commands__Pull_Token": "pull-secret",
    "CREDENTIALS_DIRECTORY": "/run/credentials/seb.service",
    "NOTIFY_SOCKET": "/run/systemd/notify",
    "LISTEN_FDS": "3",
    "WATCHDOG_USEC": "7654321",
}


def variables(record: Record) -> dict[str, str]:
    """Return the record's variables, without SEB_EVENT_ in front."""
    made = environment(record, {})
    return {name.removeprefix("SEB_EVENT_"): value for name, value in made.items()}


def test_an_event_in_variables() -> None:
    """Each variable that has a value is set, under its name."""
    record = sample_record(3, resources=("db-0", "db-1"))
    assert {name: value for name, value in variables(record).items() if value} == {
        "TYPE": "seb.event.scheduled.v1",
        "RECORD_ID": record.id,
        "TRANSITION": "scheduled",
        "ID": record.event_id,
        "EVENT_TYPE": "Freeze",
        "STATUS": "Scheduled",
        "SOURCE": "Platform",
        "NOT_BEFORE": "2026-03-01T12:15:00Z",
        "DURATION": "5",
        "IMPACT": "pause",
        "AFFECTS_THIS_VM": "true",
        "RESOURCES": "db-0\ndb-1",
        "RESOURCE_COUNT": "2",
        "REVISION": "1",
        "FINGERPRINT": record.data["fingerprint"],
        "VM_NAME": "db-0",
    }


def test_every_field_of_an_event_has_a_variable_or_a_reason_to_have_none() -> None:
    """Each field of an event has a variable of its own, or a reason in `LEFT_OUT`."""
    event = {name: f"value-of-{name}" for name in EVENT_FIELDS}
    record = sample_record()
    found = variables(replace(record, data={**record.data, "event": event}))
    shown = {name for name in EVENT_FIELDS if f"value-of-{name}" in found.values()}
    assert shown == EVENT_FIELDS.keys() - LEFT_OUT.keys()
    assert len({each.name for each in VARIABLES}) == len(VARIABLES)


def test_an_unknown_value_is_empty() -> None:
    """A variable without a value is set and empty, so that `set -u` does not end a script."""
    found = variables(sample_record(record_type=EVENT_ENDED, resources=("db-1",)))
    assert (found["NOT_BEFORE"], found["AFFECTS_THIS_VM"]) == ("", "false")
    about_itself = variables(sample_bridge_record())
    assert {name for name, value in about_itself.items() if value} == {
        *("TYPE", "RECORD_ID", "VM_NAME")
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vmss_18", "vmss_18"),
        ("a.b-c:d+e", "a.b-c:d+e"),
        ("../../etc/passwd", ".._.._etc_passwd"),
        ("$(reboot)", "__reboot_"),
        ("a;b|c&d>e<f", "a_b_c_d_e_f"),
        ("%PATH% !x! ^", "_PATH___x___"),
        ("`id` 'q' \"q\"", "_id___q___q_"),
        ("a\0b\nc\rd\x1be", "a_b_c_d_e"),
        ("-rf", "_rf"),
        ("* ? [x] {y} ~ # \\", "_____x___y_______"),
        ("größe \u202e \ud7ff", "gr__e____"),
        ("x" * 5000, "x" * 1000),
    ],
)
def test_a_value_is_one_safe_word(name: str, expected: str) -> None:
    """No value that IMDS sends can be run or split by a script."""
    record = sample_record(resources=(name,), event_id=name)
    found = variables(record)
    assert (found["RESOURCES"], found["ID"]) == (expected, expected)


def test_values_of_another_type_are_no_trouble() -> None:
    """A list with numbers and nulls becomes lines."""
    record = sample_record()
    event = {**record.data["event"], "resources": ["db-0", None, 7, {"a": 1}]}
    record = replace(record, data={**record.data, "event": event})
    assert variables(record)["RESOURCES"] == "db-0\n\n7\n__a_:_1_"


def test_a_long_list_is_cut_between_names() -> None:
    """A long list of names is cut between two names to a size that Windows accepts, and the count
    has the full number.
    """
    names = [f"vmss_{n:06d}" for n in range(5000)]
    found = variables(sample_record(resources=names))
    kept = found["RESOURCES"].split("\n")
    assert kept == names[: len(kept)]
    assert 2000 < len(kept) < 3000
    assert len(found["RESOURCES"]) < 32_000
    assert found["RESOURCE_COUNT"] == "5000"


def test_a_program_sees_no_secret_of_the_bridge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program has the record's variables and the inherited environment, without the bridge's own
    variables in any case.
    """
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DRAIN_PORT", "8080")
    monkeypatch.setenv("NOT_SEB_", "1")
    out = tmp_path / "environment"
    code = "import os, sys\nopen(sys.argv[1], 'w').write(repr(dict(os.environ)))"
    command = (sys.executable, "-SEc", code, str(out))
    settings = ProgramSettings(kind="program", command=command)
    ProgramSink("drain", settings, sample_context()).deliver([sample_record()])
    text = out.read_text()
    assert not [name for name in SECRETS if repr(name) in text]
    assert not [value for value in SECRETS.values() if "secret" in value and value in text]
    assert set(re.findall(r"(?i)'(SEB_\w+)':", text)) == {each.name for each in VARIABLES}
    assert [each in text for each in ("'DRAIN_PORT': '8080'", "'NOT_SEB_': '1'")] == [True, True]
