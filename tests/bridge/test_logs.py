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

from bridge.logs import JsonFormatter, LogfmtFormatter, Redactor, configure, dropped, flush

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
    """What a test does to the loggers is undone."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in ("apscheduler", "azure", "urllib3")}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, each in levels.items():
        logging.getLogger(name).setLevel(each)


def line(form: str, message: str, *, secrets: tuple[str, ...] = (), **fields: Any) -> str:
    """The line that a log call gives, its end included."""
    stream = io.StringIO()
    configure(form=form, level="info", secrets=secrets, stream=stream)
    logging.getLogger("somewhere").warning(message, extra=fields)
    return written(stream)


def written(stream: io.StringIO) -> str:
    """What the log has written, once all of it is."""
    flush()
    return stream.getvalue()


def pairs(text: str) -> dict[str, str]:
    """A logfmt line, read back."""
    return dict(pair.split("=", 1) for pair in shlex.split(text))


def fail(error: Exception) -> None:
    """Raise."""
    raise error


@pytest.mark.parametrize("nasty", NASTY)
@pytest.mark.parametrize("form", ["json", "logfmt"])
def test_nothing_can_forge_a_line(form: str, nasty: str) -> None:
    """Whatever an event or a server says, it stays within its value and within its line."""
    shown = line(form, nasty, action="a", reason=nasty)
    assert shown.endswith("\n")
    assert shown[:-1].isprintable()
    assert len(shown.splitlines()) == 1


@pytest.mark.parametrize("nasty", NASTY)
def test_json_gives_back_what_was_said(nasty: str) -> None:
    """Escaping loses nothing."""
    shown = json.loads(line("json", nasty, action="a", reason=nasty))
    assert (nasty, nasty, "a") == (shown["message"], shown["reason"], shown["action"])


def test_logfmt_is_pairs() -> None:
    """Plain values are bare, others are quoted."""
    shown = pairs(line("logfmt", "the sink is down", action="sink_down", failures=3, left=1.5))
    told = {"message": "the sink is down", "action": "sink_down", "failures": "3", "left": "1.5"}
    assert shown.items() >= {**told, "level": "warning"}.items()


def test_what_is_not_known_is_left_out() -> None:
    """None says nothing."""
    assert "reason" not in json.loads(line("json", "m", action="a", reason=None))


def test_a_library_without_action_gets_its_name() -> None:
    """A line of somebody else's is found by its logger."""
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
    """As it is, quoted for a URL, escaped as JSON or by Python; in message, field and trace."""
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
    """Libraries show the key of a connection string, or the path of an address, alone."""
    assert hidden not in Redactor([secret])(shown)


def test_one_secret_within_another() -> None:
    """The longer one is cut out whole."""
    assert Redactor(["abcd", "abcdefgh"])("abcdefgh abcd") == "[secret] [secret]"


def test_a_secret_does_not_break_the_syntax() -> None:
    """A secret that is a word of JSON is cut out of values alone."""
    shown = json.loads(
        line("json", "it is true", action="true", flag=True, secrets=("true", "time"))
    )
    assert (shown["message"], shown["flag"]) == ("it is [secret]", True)
    assert shown["time"]


def test_very_short_secrets_cut_no_words() -> None:
    """A password of three letters would make every line unreadable."""
    assert Redactor(["abc"])("abcabc") == "abcabc"


def test_an_exception_stays_one_line() -> None:
    """The trace is a field like any other."""
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
    """Not-a-number and infinity are written as words."""
    shown = json.loads(
        line("json", "m", action="a", nan=float("nan"), far=float("inf")),
        parse_constant=pytest.fail,
    )
    assert (shown["nan"], shown["far"]) == ("nan", "inf")


def test_a_message_whose_arguments_do_not_fit() -> None:
    """A library's mistake costs neither the line nor a trace on standard error."""
    stream = io.StringIO()
    configure(form="json", level="info", stream=stream)
    logging.getLogger("x").warning("%d things", "no")
    assert json.loads(written(stream))["message"] == "%d things"


class FullDisk(io.StringIO):
    """Takes nothing."""

    def write(self, text: str, /) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")


def test_a_line_that_cannot_be_written_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    """A log on a full disk ends nothing, and makes no noise elsewhere."""
    configure(form="json", level="info", stream=FullDisk())
    logging.getLogger("x").warning("m")
    flush()
    assert (capsys.readouterr(), dropped()) == (("", ""), 1)


def test_auto_is_json_where_there_is_no_terminal() -> None:
    """Programs get JSON, people logfmt."""
    assert json.loads(line("auto", "m"))["message"] == "m"

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    configure(form="auto", level="info", stream=stream)
    logging.getLogger("x").warning("m")
    assert pairs(written(stream))["message"] == "m"


def test_the_level_is_kept() -> None:
    """Less important lines are not shown; those of noisy libraries never."""
    stream = io.StringIO()
    configure(form="json", level="warning", stream=stream)
    logging.getLogger("x").info("no")
    logging.getLogger("apscheduler").warning("no")
    logging.getLogger("azure.eventhub").error("no")
    assert written(stream) == ""
