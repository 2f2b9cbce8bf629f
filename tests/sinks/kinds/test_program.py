"""The sink that runs a program: what each exit code means."""

import json
import os
import signal
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from support.process.scripts import runnable
from support.sinks.destination import FarEnd
from support.sinks.program import a_sink, failure, python, shell

from sinks.base import SinkRejected
from sinks.kinds.program import ProgramSink
from sinks.kinds.program.settings import ProgramSettings
from sinks.shared.text import escaped
from sinks.testing import SinkContract, sample_context, sample_record
from wire.record import APPROVAL, BRIDGE_HEARTBEAT, BRIDGE_STARTED, EVENT_ENDED


class TestProgramContract(SinkContract):
    sink_class = ProgramSink

    @pytest.fixture
    def destination(self, tmp_path: Path) -> FarEnd:
        """A program that appends its input to a file, and can be removed and put back."""
        file, away = tmp_path / "received", tmp_path / "away"
        program = runnable(
            tmp_path / "append",
            "import sys\n"
            "with open(sys.argv[1], 'ab') as file:\n"
            "    file.write(sys.stdin.buffer.read() + b'\\n')",
        )
        words = [str(program), str(file), "--secret=token-that-is-secret"]
        return FarEnd(
            settings={"command": json.dumps(words), "types": '["seb.event.*"]'},
            secrets=["token-that-is-secret"],
            received=lambda: file.read_bytes().splitlines() if file.exists() else [],
            stop=lambda: program.rename(away),
            start=lambda: away.rename(program),
        )

    def test_settings_are_frozen_and_hide_secrets(self, destination: FarEnd) -> None:
        """The settings are frozen; they show the command line, which every account can read in the
        list of processes.
        """
        super().test_settings_are_frozen_and_hide_secrets(replace(destination, secrets=()))


# Exit codes and what the program said.


SAY = "import sys; print('done so far'); print({said!r}, file=sys.stderr); sys.exit({code})"
posix_only = pytest.mark.skipif(os.name != "posix", reason="Windows has no signals")


@pytest.mark.parametrize("code", [1, 2, 64, 66, 75, 126, 127, 255])
def test_an_exit_code_other_than_0_is_no_acknowledgement(code: int) -> None:
    """After another exit code the record is tried again; the reason has the code and the end of the
    error output.
    """
    error = failure(python(SAY.format(said="no such node", code=code)))
    assert error == f"{escaped(sys.executable)} ended with exit code {code}; it said: no such node"


def test_65_refuses_the_record_for_good() -> None:
    """A record is dead at once if the program ends with 65."""
    with pytest.raises(SinkRejected) as caught:
        python(SAY.format(said="not with me", code=65)).deliver([sample_record()])
    refused = f"{escaped(sys.executable)} refused the record; it said: not with me"
    assert str(caught.value) == refused
    assert (caught.value.tries, caught.value.delivered) == (1, 0)


@posix_only
def test_a_program_that_is_killed_has_acknowledged_nothing() -> None:
    """After a signal the record is tried again; the reason has the signal's name, or the number of
    a real-time signal.
    """
    assert failure(shell("kill -KILL $$")) == "/bin/sh was ended by SIGKILL; it printed nothing"
    number = getattr(signal, "SIGRTMIN", 34) + 3
    assert f"was ended by signal {number}" in failure(shell(f"kill -{number} $$"))


def test_the_output_of_a_program_is_made_harmless() -> None:
    """Of a program's output, control characters are escaped, bytes that are not UTF-8 are replaced,
    and lines are joined.
    """
    code = r"import sys; sys.stderr.buffer.write(b'one\r\n\n  \033[2Jtwo\377\a\n'); sys.exit(1)"
    error = failure(python(code))
    assert error.endswith("it said: one | \\u001b[2Jtwo\ufffd\\u0007")


def test_the_end_of_long_output_is_the_reason() -> None:
    """The reason has the end of long output, and fits into its 500 characters."""
    code = "import sys; [print('line', n, file=sys.stderr) for n in range(999)]; sys.exit(1)"
    error = failure(python(code))
    assert error.startswith(f"{escaped(sys.executable)} ended with exit code 1; it said: …")
    assert error.endswith("line 997 | line 998")
    assert 330 < len(error) - len(escaped(sys.executable)) + len("/bin/sh") < 350


def test_huge_output_is_read_and_forgotten() -> None:
    """100 MB on each output neither block the program nor fill the memory."""
    sink = a_sink(
        *(sys.executable, "-SEc"),
        "import os, sys\n"
        "chunk = b'x' * 1000000\n"
        "for _ in range(100):\n"
        "    sys.stdout.buffer.write(chunk), sys.stderr.buffer.write(chunk)\n"
        "sys.stderr.write('the end')\n"
        "sys.stderr.flush(), os._exit(1)",
    )
    tracemalloc.start()
    error = failure(sink)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert error.endswith("xxxthe end")
    assert peak < 4_000_000


# Input.


def test_a_program_may_read_to_the_end_or_not_at_all(tmp_path: Path) -> None:
    """Standard input has exactly the record's bytes; a program that reads none of them is no error,
    however large the record is.
    """
    record = sample_record(resources=[f"vmss_{n}" for n in range(30_000)])
    python("pass").deliver([record])
    python("import os; os.close(0)").deliver([record])
    code = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())"
    python(code, tmp_path / "got").deliver([record])
    assert (tmp_path / "got").read_bytes() == record.body


def test_no_shell_interprets_the_arguments(tmp_path: Path) -> None:
    """Arguments reach the program unchanged."""
    words = ["$(touch x)", "a  b", "*", "`id`", "'", "\\", "ü"]
    out = tmp_path / "out"
    code = "import json, sys; open(sys.argv[1], 'w').write(json.dumps(sys.argv[2:]))"
    python(code, out, *words).deliver([sample_record()])
    assert words == json.loads(out.read_text())


@pytest.mark.parametrize(
    ("types", "record_type", "expected"),
    [
        (None, EVENT_ENDED, True),
        (None, APPROVAL, True),
        (None, BRIDGE_STARTED, True),
        (None, BRIDGE_HEARTBEAT, False),
        (("seb.bridge.*",), BRIDGE_HEARTBEAT, True),
    ],
)
def test_it_gets_heartbeats_only_where_it_asks(
    types: tuple[str, ...] | None, record_type: str, expected: bool
) -> None:
    """The program gets every record but heartbeats, unless its `types` say otherwise."""
    settings = ProgramSettings(kind="program", command=("true",), types=types)
    sink = ProgramSink("drain", settings, sample_context())
    assert expected == sink.accepts(record_type, None)
