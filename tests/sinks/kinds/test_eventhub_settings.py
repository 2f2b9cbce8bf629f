"""The Event Hubs sink: its settings."""

import re
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from sinks.base import SinkError
from sinks.kinds.eventhub import EventHubSink
from sinks.kinds.eventhub.settings import EventHubSettings
from sinks.testing import sample_context

KEY = "c2VjcmV0IGtleSBvZiB0aGUgdGVzdA=="
STRING = f"Endpoint=sb://n.example/;SharedAccessKeyName=p;SharedAccessKey={KEY};EntityPath=h"
NAMED = {"namespace": "n.example.net", "name": "h"}


def refusal(**settings: object) -> str:
    """Return the message of the validation error."""
    with pytest.raises(ValidationError) as caught:
        EventHubSettings.model_validate({"kind": "eventhub", **settings})
    assert KEY not in f"{caught.value} {caught.value!r} {caught.value.errors(include_input=False)}"
    return str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "there is none of them"),
        ({"name": "h"}, "there is none of them"),
        (
            {"connection_string": STRING, "namespace": "n.example"},
            "connection_string and namespace",
        ),
        ({"connection_string": STRING, "connection_string_file": "/x"}, "connection_string and co"),
        ({"connection_string": f"{STRING};UseDevelopmentEmulator=true"}, "connection_string: UseD"),
        ({"connection_string": STRING.replace(";EntityPath=h", "")}, "connection_string: .*Entity"),
        ({"connection_string": ""}, "connection_string: "),
        ({"connection_string": STRING, "name": "no hub"}, "connection_string: name is"),
        ({"namespace": "n"}, "namespace: namespace is the full"),
        ({"namespace": "n.example"}, "namespace: name"),
        ({"connection_string": STRING, "proxy": "http://p"}, "proxy"),
        ({"connection_string": STRING, "transport": "http"}, "transport"),
        ({**NAMED, "proxy": "http://proxy.example:3128"}, "set TRANSPORT=websocket"),
        ({**NAMED, "transport": "websocket", "proxy": "socks5://p:1080"}, "http://HOST:PORT"),
        ({**NAMED, "transport": "websocket", "proxy": f"http://vm:{KEY}@p"}, "http://HOST:PORT"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], words: str) -> None:
    """The error names a setting that is wrong, missing or superfluous, and does not show its
    value.
    """
    assert re.search(words, refusal(**settings))


def test_the_file_is_checked_like_the_setting(tmp_path: Path) -> None:
    """A file that cannot be read at the start, or whose content is not safe, is a mistake in the
    settings.
    """
    file = tmp_path / "connection"
    assert "connection_string_file: the secret file" in refusal(connection_string_file=file)
    file.write_text(f"{STRING};UseDevelopmentEmulator=true\n", encoding="utf-8")
    assert "connection_string_file: UseDevelopmentEmulator" in refusal(connection_string_file=file)


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without azure-identity a managed identity is refused, with the command that installs the
    package.
    """
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    settings = EventHubSettings(kind="eventhub", namespace="n.invalid", name="h")
    sink = EventHubSink("hub", settings, sample_context())
    with pytest.raises(SinkError, match=r"pip install 'scheduled-events-bridge\[azure-identity\]'"):
        sink.open()
    (line,) = sink.check()
    assert line.level == "fail"
