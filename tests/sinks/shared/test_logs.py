"""Log lines: one each, whatever is in them, and never a secret."""

import errno
import io
import json
import logging
import shlex
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from sinks.shared.logs import JsonFormatter, LogfmtFormatter, Redactor, configure, dropped, flush

SECRET = 'p"a\\s/s wörd\n+%'
NASTY = [
    'two\nlines level=info action="forged"',
    "carriage\rreturn",
    "\x1b[2J\x9b31m colours",
    "line\u2028separator\u2029paragraph\x85next",
    "\u202eturned round",
    "nul\0 delete\x7f",
    "half a pair \ud800",
    'quotes " and \\ backslashes',
    "= equals",
    "",
    "ünïcode \U0001f600",
]


@pytest.fixture(autouse=True)
def loggers_as_they_were() -> Iterator[None]:
    """Undo what a test does to the loggers."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in ("apscheduler", "azure", "urllib3")}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, each in levels.items():
        logging.getLogger(name).setLevel(each)


def line(form: str, message: str, *, secrets: tuple[str, ...] = (), **fields: Any) -> str:
    """Return the line of a log call, with its end."""
    stream = io.StringIO()
    configure(form=form, level="info", secrets=secrets, stream=stream)
    logging.getLogger("somewhere").warning(message, extra=fields)
    return written(stream)


def written(stream: io.StringIO) -> str:
    """Return what the log has written, once all of it is."""
    flush()
    return stream.getvalue()


def pairs(text: str) -> dict[str, str]:
    """Return a logfmt line as a mapping."""
    return dict(pair.split("=", 1) for pair in shlex.split(text))


def fail(error: Exception) -> None:
    """Raise an error."""
    raise error


@pytest.mark.parametrize("nasty", NASTY)
@pytest.mark.parametrize("form", ["json", "logfmt"])
def test_nothing_can_forge_a_line(form: str, nasty: str) -> None:
    """Any text of an event or a server stays within its value and its line."""
    shown = line(form, nasty, action="a", reason=nasty)
    assert shown.endswith("\n")
    assert shown[:-1].isprintable()
    assert len(shown.splitlines()) == 1


@pytest.mark.parametrize("nasty", NASTY)
def test_json_gives_back_what_was_said(nasty: str) -> None:
    """A text that is read back from a JSON line is unchanged."""
    shown = json.loads(line("json", nasty, action="a", reason=nasty))
    assert (nasty, nasty, "a") == (shown["message"], shown["reason"], shown["action"])


def test_logfmt_is_pairs() -> None:
    """A plain value has no quotes, and others are quoted."""
    shown = pairs(line("logfmt", "the sink is down", action="sink_down", failures=3, left=1.5))
    told = {"message": "the sink is down", "action": "sink_down", "failures": "3", "left": "1.5"}
    assert shown.items() >= {**told, "level": "warning"}.items()


def test_what_is_not_known_is_left_out() -> None:
    """A field whose value is None is left out."""
    assert "reason" not in json.loads(line("json", "m", action="a", reason=None))


def test_a_library_without_action_gets_its_name() -> None:
    """A line of a library, which has no action, has the name of its logger."""
    assert json.loads(line("json", "m"))["action"] == "somewhere"


@pytest.mark.parametrize("form", ["json", "logfmt"])
@pytest.mark.parametrize(
    "spelt",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        quote(SECRET, safe="").replace("%2F", "%2f"),
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        repr(SECRET),
    ],
)
def test_a_secret_is_cut_out_however_it_is_spelt(form: str, spelt: str) -> None:
    """A secret is removed from message, field and trace, whether plain, quoted for a URL, or
    escaped as JSON or by Python.
    """
    stream = io.StringIO()
    configure(form=form, level="info", secrets=(SECRET,), stream=stream)
    try:
        fail(ValueError(f"with {spelt}"))
    except ValueError:
        logging.getLogger("x").exception("it says %s", spelt, extra={"reason": f"a{spelt}b"})
    shown = written(stream)
    assert shown.count("[secret]") >= 3
    for part in ("wörd", "w\\u00f6rd", "w%C3%B6rd", "w%c3%b6rd"):
        assert part not in shown


@pytest.mark.parametrize(
    ("secret", "shown", "hidden"),
    [
        (
            "Endpoint=sb://a/;SharedAccessKeyName=send;SharedAccessKey=abcd1234=",
            "CBS refused abcd1234=",
            "abcd1234",
        ),
        ("https://hooks.example/services/T0/B0/x1y2", "retries with /services/T0/B0/x1y2", "x1y2"),
        ("https://hooks.example/h?sig=q9z8", "url: /h?sig=q9z8 (refused)", "q9z8"),
        ("whsec_first whsec_second", "bad key whsec_second", "whsec_second"),
    ],
)
def test_the_part_that_matters_is_cut_out(secret: str, shown: str, hidden: str) -> None:
    """The key of a connection string, and the path of an address, are removed also where a library
    shows them alone.
    """
    assert hidden not in Redactor([secret])(shown)


def test_one_secret_within_another() -> None:
    """If one secret contains another, all of the longer one is removed."""
    assert Redactor(["abcd", "abcdefgh"])("abcdefgh abcd") == "[secret] [secret]"


def test_a_secret_does_not_break_the_syntax() -> None:
    """A secret that is a word of JSON is removed only from values."""
    shown = json.loads(
        line("json", "it is true", action="true", flag=True, secrets=("true", "time"))
    )
    assert (shown["message"], shown["flag"]) == ("it is [secret]", True)
    assert shown["time"]


def test_very_short_secrets_cut_no_words() -> None:
    """A secret of three letters is not removed, because that would cut words."""
    assert Redactor(["abc"])("abcabc") == "abcabc"


def test_an_exception_stays_one_line() -> None:
    """The trace of an exception is a field of its line."""
    for form in (JsonFormatter, LogfmtFormatter):
        try:
            fail(RuntimeError("first\nsecond"))
        except RuntimeError as error:
            record = logging.LogRecord(
                "x", logging.ERROR, "f", 1, "m", None, (RuntimeError, error, error.__traceback__)
            )
        shown = form(Redactor()).format(record)
        assert shown.isprintable()
        assert "RuntimeError: first" in shown


def test_figures_that_json_does_not_know() -> None:
    """NaN and infinity are written as words."""
    shown = json.loads(
        line("json", "m", action="a", nan=float("nan"), far=float("inf")),
        parse_constant=pytest.fail,
    )
    assert (shown["nan"], shown["far"]) == ("nan", "inf")


def test_a_message_whose_arguments_do_not_fit() -> None:
    """A library's message with wrong arguments is logged, without a trace on standard error."""
    stream = io.StringIO()
    configure(form="json", level="info", stream=stream)
    logging.getLogger("x").warning("%d things", "no")
    assert json.loads(written(stream))["message"] == "%d things"


class RefusingStream(io.StringIO):
    """A stream that accepts nothing."""

    def write(self, text: str, /) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")


def test_a_line_that_cannot_be_written_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    """A line that a full disk refuses is lost, and raises and prints nothing."""
    configure(form="json", level="info", stream=RefusingStream())
    logging.getLogger("x").warning("m")
    flush()
    assert (capsys.readouterr(), dropped()) == (("", ""), 1)


def test_auto_is_json_where_there_is_no_terminal() -> None:
    """The format `auto` is logfmt on a terminal, and JSON elsewhere."""
    assert json.loads(line("auto", "m"))["message"] == "m"

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    configure(form="auto", level="info", stream=stream)
    logging.getLogger("x").warning("m")
    assert pairs(written(stream))["message"] == "m"


def test_the_level_is_kept() -> None:
    """Lines below the level are not shown, and those of noisy libraries never are."""
    stream = io.StringIO()
    configure(form="json", level="warning", stream=stream)
    logging.getLogger("x").info("no")
    logging.getLogger("apscheduler").warning("no")
    logging.getLogger("azure.eventhub").error("no")
    assert written(stream) == ""
