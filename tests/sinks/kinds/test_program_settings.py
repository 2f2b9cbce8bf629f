"""The sink that runs a program: how its command line is read."""

import json

import pytest
from pydantic import ValidationError

from sinks.kinds.program.settings import ProgramSettings, split_command


def read(**fields: object) -> ProgramSettings:
    """Return the settings from these fields, as from the environment."""
    return ProgramSettings.model_validate({"kind": "program", **fields})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/usr/local/bin/drain.sh", ["/usr/local/bin/drain.sh"]),
        ("  drain.sh   --all\t-v \n", ["drain.sh", "--all", "-v"]),
        ("'/opt/my drain' \"a b\" c\\ d", ["/opt/my drain", "a b", "c d"]),
        ("drain.sh '' #no-comment", ["drain.sh", "", "#no-comment"]),
        ("drain.sh $HOME ~ * a|b c;d", ["drain.sh", "$HOME", "~", "*", "a|b", "c;d"]),
        ("sh -c 'a | b && c > d'", ["sh", "-c", "a | b && c > d"]),
        ("drän.sh ü", ["drän.sh", "ü"]),
    ],
)
def test_a_line_is_split_as_a_shell_would(text: str, expected: list[str]) -> None:
    """A line is split with the quotes and backslashes of POSIX, and without any other feature of a
    shell.
    """
    assert tuple(expected) == split_command(text, windows=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"C:\seb\drain.exe", ["C:\\seb\\drain.exe"]),
        (r'"C:\Program Files\drain.exe" --all', ["C:\\Program Files\\drain.exe", "--all"]),
        (r'"C:\dir with end\" x', ["C:\\dir with end\\", "x"]),
        (r"\\server\share\drain.cmd \n", ["\\\\server\\share\\drain.cmd", "\\n"]),
        (r"C:\O'Brien\drain.exe it's", ["C:\\O'Brien\\drain.exe", "it's"]),
        (
            r"powershell -NoProfile -File C:\seb\drain.ps1",
            ["powershell", "-NoProfile", "-File", "C:\\seb\\drain.ps1"],
        ),
    ],
)
def test_on_windows_a_backslash_is_itself(text: str, expected: list[str]) -> None:
    """On Windows backslashes stay as they are, and only double quotes group."""
    assert tuple(expected) == split_command(text, windows=True)


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("text", ["a | b", "a && b", "a > b", "a 2>&1", "a ; b", "a &"])
def test_what_only_a_shell_could_run_is_refused(text: str, windows: bool) -> None:
    """A line with operators of a shell is refused, because they would silently become arguments."""
    with pytest.raises(ValueError, match="it is run without a shell"):
        split_command(text, windows=windows)


def test_a_command_is_a_line_or_a_list() -> None:
    """A command is a line, or a list (JSON in the environment), of which nothing is split or
    refused.
    """
    words = ("/opt/my drain", "a | b", "|", "", "$(x)")
    assert words == read(command=json.dumps(words)).command
    assert words == read(command=list(words)).command
    assert read(command="drain.sh --all").command == ("drain.sh", "--all")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "command"),
        ({"command": ""}, "name a program"),
        ({"command": "   "}, "name a program"),
        ({"command": "[]"}, "name a program"),
        ({"command": '["", "secret"]'}, "name a program"),
        ({"command": '[" "]'}, "name a program"),
        ({"command": '"drain.sh secret'}, "a quote is not closed"),
        ({"command": '["a", "secret"'}, "begins like a JSON list, but is not valid JSON"),
        ({"command": "[1]"}, "valid string"),
        ({"command": '[["secret"]]'}, "valid string"),
        ({"command": '["a\\u0000secret"]'}, "NUL"),
        ({"command": None}, "valid tuple"),
    ],
)
def test_a_command_that_cannot_be_one_is_refused(fields: dict[str, object], reason: str) -> None:
    """The error about an invalid command says what is wrong, and shows no argument, which may be a
    secret.
    """
    with pytest.raises(ValidationError, match=reason) as caught:
        read(**fields)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("timeout", ["0", "-1", "nan", "inf", "86401", "soon"])
def test_a_timeout_is_a_time(timeout: str) -> None:
    """The timeout is more than zero and at most a day; a minute by default."""
    assert (read(command="true").timeout, read(command="true", timeout="1.5").timeout) == (60, 1.5)
    with pytest.raises(ValidationError, match="timeout"):
        read(command="true", timeout=timeout)
