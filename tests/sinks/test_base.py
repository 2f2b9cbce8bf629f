"""The settings that every sink has."""

import re
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from sinks.base import Problem, Sink, SinkError, SinkPaused, SinkRejected, SinkSettings, read_secret
from sinks.errors import certificate_remedy
from sinks.testing import (
    MemorySink,
    sample_context,
    sample_record,
    sample_records,
)
from wire.record import Record


def settings(**others: Any) -> SinkSettings:
    """Return the settings of a sink in memory."""
    return SinkSettings.model_validate({"kind": "memory", **others})


class QuietSink(MemorySink):
    @property
    def wants_heartbeats(self) -> bool:
        return False


def kinds(sink: Sink[Any]) -> set[str]:
    """Return the kinds of record that the sink accepts."""
    taken = [each for each in sample_records() if sink.accepts(each.type, each.concerns_this_vm)]
    return {record.type.split(".")[2] for record in taken}


ALL = {record.type.split(".")[2] for record in sample_records()}


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (None, ALL),
        (["seb.event.*"], {"scheduled", "updated", "started", "ended"}),
        (["seb.event.started.v1"], {"started"}),
        (["*.scheduled.v1", "*.gap.v1"], {"scheduled", "gap"}),
        ('["*.scheduled.v1", "*.gap.v1"]', {"scheduled", "gap"}),  # of a variable
        (["seb.bridge.heartbeat.v1"], {"heartbeat"}),
        (["SEB.event.*"], set()),
        ([], set()),
    ],
)
def test_types_are_globs(types: list[str] | str | None, expected: set[str]) -> None:
    """A sink gets the types that match one of its globs, with regard to case; without globs, it
    gets all.
    """
    fields = {} if types is None else {"types": types}
    assert expected == kinds(MemorySink(settings=settings(**fields)))


def test_heartbeats_and_other_vms_can_be_left_out() -> None:
    """A sink gets heartbeats only if its class or its `types` ask for them; `affects_this_vm_only`
    leaves out events of other VMs, and no record about the bridge.
    """
    assert kinds(QuietSink()) == ALL - {"heartbeat"}
    assert kinds(QuietSink(settings=settings(types=["seb.*"]))) == ALL
    mine = MemorySink(settings=settings(affects_this_vm_only=True))
    others = sample_record(resources=["db-1"])
    assert not mine.accepts(others.type, others.concerns_this_vm)
    assert kinds(mine) == ALL


@pytest.mark.parametrize("types", ['["x"', "seb.event.*", '{"a": 1}', "[1]"])
def test_types_that_are_no_json_list_are_refused(types: str) -> None:
    """`types` that is not a list of texts is a mistake in the settings."""
    with pytest.raises(ValidationError, match="types"):
        settings(types=types)


def test_settings_are_strict() -> None:
    """A setting with an unknown name is refused, and its value is not shown."""
    with pytest.raises(ValidationError, match="pasword") as caught:
        settings(pasword="hunter2")
    assert "hunter2" not in str(caught.value)


def test_a_secret_file_is_read_each_time(tmp_path: Path) -> None:
    """A secret that was replaced in its file is used at once, without the line end; without a file,
    the setting is used.
    """
    assert read_secret(SecretStr("hunter2"), None) == "hunter2"
    assert read_secret(None, None) is None
    file = tmp_path / "secret"
    file.write_bytes(b" one \r\n")
    assert read_secret(None, file) == " one "
    file.write_bytes(b"two\n")
    assert read_secret(None, file) == "two"


@pytest.mark.parametrize("content", [None, b"\xffhunter2"])
def test_a_secret_file_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    """The error names the secret file, and shows nothing of its content."""
    file = tmp_path / "secret"
    if content:
        file.write_bytes(content)
    with pytest.raises(SinkError, match=re.escape(str(file))) as caught:
        read_secret(None, file)
    assert "hunter2" not in str(caught.value)


def test_a_sink_needs_no_more_than_deliver() -> None:
    """A sink may leave out every method but `deliver`."""

    class Least(Sink[SinkSettings]):
        KIND = "least"

        def deliver(self, records: Sequence[Record]) -> None:
            pass

    sink = Least("least", settings(kind="least"), sample_context())
    sink.open()
    sink.maintain()
    sink.abort()
    sink.close()
    assert (list(sink.check()), sink.BATCH, sink.deadline) == ([], 1, 30.0)


def test_an_error_keeps_its_remedy_apart() -> None:
    """An error has fact and remedy as two clauses: a person reads one line, and `seb check` shows
    both separately.
    """
    error = SinkError("no answer", remedy="start it")
    assert (str(error), error.problem) == ("no answer; start it", Problem("no answer", "start it"))
    moved = SinkError(error.problem.at("mail:25"), retry_after=7)
    assert (str(moved), moved.problem.remedy) == ("mail:25: no answer; start it", "start it")
    assert SinkError("a; b").problem == Problem("a; b", None)


def test_the_defaults_of_errors() -> None:
    """By default an error says that no record was delivered, asks for no wait, and marks a rejected
    record as dead at once.
    """
    error, rejected = SinkError("x"), SinkRejected("x")
    assert (error.retry_after, error.delivered) == (None, 0)
    assert (rejected.delivered, rejected.tries) == (0, 1)
    assert isinstance(SinkPaused("x"), SinkError)
    assert not isinstance(rejected, SinkError)


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("CA cert does not include key usage extension", "made against RFC 5280"),
        ("Basic Constraints of CA cert not marked critical", "made against RFC 5280"),
        ("unable to get local issuer certificate", "name its authority"),
        ("certificate has expired", "name its authority"),
    ],
)
def test_an_authority_that_is_made_wrongly_is_explained(said: str, remedy: str) -> None:
    """Every kind of sink explains a trusted authority that violates the standard, and does not
    advise to trust it.
    """
    error = ssl.SSLCertVerificationError(1, said)
    error.verify_message = said
    assert remedy in certificate_remedy(error, "name its authority")
