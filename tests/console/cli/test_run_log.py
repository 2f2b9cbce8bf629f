"""No secret of the console's settings is in its log, in whatever form an error quotes it."""

import io
import json
import logging
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from console.cli.common import secrets_of
from console.config.settings import ConsoleSettings
from sinks.shared import logs

PASSWORD = 'p@ss/w"ord'


@pytest.fixture(autouse=True)
def loggers_as_they_were() -> Iterator[None]:
    """Undo what a test does to the loggers."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("form", ["json", "logfmt"])
def test_no_form_of_a_secret_is_in_the_log(form: str) -> None:
    """A password of a source and of the database is hidden as it is, escaped, and in a URL."""
    quoted = quote(PASSWORD, safe="")
    partly = quote(PASSWORD, safe="@")
    settings = ConsoleSettings.model_validate(
        {
            "database": f"postgresql://seb:{partly}@db.example/seb",
            "source": {"mqtt": {"kind": "mqtt", "url": "mqtts://b.example", "password": PASSWORD}},
        }
    )
    stream = io.StringIO()
    logs.configure(form=form, level="info", secrets=secrets_of(settings), stream=stream)
    forms = (PASSWORD, json.dumps(PASSWORD)[1:-1], repr(PASSWORD)[1:-1], quoted, partly)
    for each in forms:
        logging.getLogger("console").error("it refused %s", each, extra={"action": "x"})
    logs.flush()
    written = stream.getvalue()
    assert written.count("[secret]") == len(forms)
    assert not any(each in written for each in forms)
