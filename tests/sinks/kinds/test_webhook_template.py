"""The webhook sink: bodies that a template makes."""

import json
import re
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sinks.kinds.webhook.template import RenderError, TemplateFormatError, compile_template, render
from sinks.testing import EVENT_TYPES, sample_heartbeat, sample_record, sample_records
from wire.record import EVENT_ENDED, EVENT_SCHEDULED, EVENT_STARTED, Record

DOCS = Path(__file__).parents[3] / "docs" / "webhook-templates.md"
EXAMPLES = dict(
    re.findall(
        r"^## (\w+)\n.*?```jinja\n(.*?)```", DOCS.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
)
HOSTILE = 'quote " backslash \\ brace }} {{ <b> & \n \x1b[2J \u2028 end'


def rendered(template: str, record: Record | None = None) -> bytes:
    """Return the body that a template makes of a record."""
    return render(compile_template(template), record or sample_record()).body


def test_the_documented_variables() -> None:
    """`record`, `data`, `event` and `vm` have the values that the documentation describes."""
    template = "{{ record.id }} {{ data.transition }} {{ event.eventType }} {{ vm.name }}"
    assert rendered(template) == f"{sample_record().id} scheduled Freeze db-0".encode()


def test_there_is_no_event_in_a_heartbeat() -> None:
    """`event` is false in the template of a heartbeat."""
    assert rendered("{{ 'yes' if event else 'no' }}", sample_heartbeat()) == b"no"


def test_tojson_is_json_and_not_html() -> None:
    """`tojson` writes a hostile description as the same text in JSON, without HTML escapes."""
    body = rendered(
        '{"text": {{ event.description | tojson }}}', sample_record(description=HOSTILE)
    )
    assert json.loads(body) == {"text": HOSTILE}
    assert b"<b> &" in body


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ('{"a": 1}', "application/json"),
        ("[1]", "application/json"),
        ("hello", "text/plain; charset=utf-8"),
        ('{"a": }', "text/plain; charset=utf-8"),
        ("[" * 100_000, "text/plain; charset=utf-8"),
    ],
)
def test_the_content_type_is_what_the_body_is(template: str, expected: str) -> None:
    """A body that can be read as JSON is sent as JSON, any other as text."""
    assert expected == render(compile_template(template), sample_record()).content_type


def test_a_template_may_be_a_file(tmp_path: Path) -> None:
    """A template is read as UTF-8 from the file that `file:` names."""
    file = tmp_path / "chat.j2"
    file.write_text("{{ vm.name }} \u2013\n", encoding="utf-8")
    assert rendered(f"file:{file}") == "db-0 \u2013".encode()
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TemplateFormatError, match="not UTF-8"):
        compile_template(f"file:{file}")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("a\n{{ vm. }}", "template, line 2: "),
        ("{% if %}", "template, line 1: "),
        ("{% for %}", "template, line 1: "),
        ("{{ 'x' | no_such_filter }}", "template, line 1: No filter named"),
        ("file:does-not-exist.j2", "the template's file cannot be read: "),
    ],
)
def test_a_template_that_does_not_compile_is_refused(template: str, said: str) -> None:
    """A mistake in a template is found at the start, with its line."""
    with pytest.raises(TemplateFormatError, match=said):
        compile_template(template)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("\n\n{{ event.nothing }}", "template, line 3: .* has no attribute 'nothing'"),
        ("{{ nothing }}", "template, line 1: 'nothing' is undefined"),
        ("{{ nothing | tojson }}", "template, line 1: 'nothing' is undefined"),
        ("{{ event.eventType + 1 }}", "template, line 1: TypeError"),
        ("a\n{{ 1 / 0 }}", "template, line 2: ZeroDivisionError"),
        ("{{ vm['name']['x']['y'] }}", "template, line 1: "),
        ("{{ ''.__class__.__mro__ }}", "template, line 1: access to attribute '__class__'"),
        ("{% include 'x' %}", "template, line 1: "),
        ("{{ vm.update({}) }}", "template, line 1: .*unsafe"),
        ("{{ '\\ud800' }}", "template: UnicodeEncodeError"),
        ("  \n ", "nothing was rendered"),
        ("{% if not event %}x{% endif %}", "nothing was rendered"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
    ],
)
def test_a_mistake_on_rendering_is_named_with_its_line(template: str, said: str) -> None:
    """The error names the template's line if the template does not fit the record or leaves the
    sandbox.
    """
    with pytest.raises(RenderError, match=said):
        rendered(template)


@pytest.mark.parametrize(
    "template",
    [
        "{% for n in range(100000) %}{{ 'a' * 1000 }}{% endfor %}",
        "{{ 'a' * 100000000 }}",
        "{{ 100000000 * [1] }}",
        "{{ 9 ** 9 ** 9 }}",
        "{% for n in range(99999999) %}x{% endfor %}",
    ],
)
def test_a_huge_body_is_refused(template: str) -> None:
    """A body that would fill the memory is refused before it is complete."""
    with pytest.raises(RenderError, match=r"KiB were rendered|not for templates|Range too big"):
        rendered(template)


def test_a_slow_rendering_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rendering has a time limit."""
    monkeypatch.setattr("sinks.kinds.webhook.template._MAX_SECONDS", -1.0)
    with pytest.raises(RenderError, match="more than"):
        rendered("{% for n in range(10) %}x{% endfor %}")


def test_arithmetic_still_works() -> None:
    """The limit on repetition does not affect numbers."""
    assert rendered("{{ 2 * 3 }} {{ 'ab' * 2 }} {{ 1.5 * 2 }}") == b"6 abab 3.0"


def get_of(example: str) -> list[Record]:
    """Return the records that a documented example gets: all but heartbeats; a pager gets events
    only.
    """
    hostile = [
        sample_record(n, record_type=kind, description=HOSTILE, resources=resources)
        for n, kind in enumerate(EVENT_TYPES, 20)
        for resources in ((), ("db-0",), ("a", "b", "c"))
    ]
    records = [record for record in sample_records() if not record.is_heartbeat] + hostile
    return [r for r in records if example != "PagerDuty" or r.type.startswith("seb.event.")]


def test_the_documentation_has_its_examples() -> None:
    """The documentation has examples for Slack, Teams and PagerDuty."""
    assert list(EXAMPLES) == ["Slack", "Teams", "PagerDuty"]


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_fits_every_record_that_it_gets(example: str) -> None:
    """No documented template fails for any type of record or any text in one."""
    template = compile_template(EXAMPLES[example])
    for record in get_of(example):
        made = render(template, record)
        assert made.content_type == "application/json"
        assert isinstance(json.loads(made.body), dict)


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_survives_nulls(example: str) -> None:
    """No documented template fails if values are null because Azure leaves them out."""
    envelope: dict[str, Any] = json.loads(sample_record().body)
    envelope["data"]["impact"] = None
    for name in ("eventType", "notBefore", "description", "eventSource", "durationInSeconds"):
        envelope["data"]["event"][name] = None
    body = json.dumps(envelope).encode()
    record = Record(
        **{
            name: getattr(sample_record(), name)
            for name in Record.__dataclass_fields__
            if name != "body"
        },
        body=body,
    )
    assert b"None" not in render(compile_template(EXAMPLES[example]), record).body


def test_slack_reads_well() -> None:
    """The line for Slack has the VM, the event, its time and its reason."""
    body = rendered(EXAMPLES["Slack"], sample_record(description="a < b & c"))
    assert json.loads(body) == {
        "text": "*db-0*: Freeze scheduled (pause), not before 2026-03-01T12:15:00Z\n"
        "> a &lt; b &amp; c"
    }


def test_teams_gets_a_card() -> None:
    """The card has a title, the description and the facts."""
    (attachment,) = json.loads(rendered(EXAMPLES["Teams"]))["attachments"]
    body = attachment["content"]["body"]
    lines = ["".join(run["text"] for run in each["inlines"]) for each in body]
    assert lines[0] == "db-0: Freeze Scheduled"
    assert lines[2] == "Not before: 2026-03-01T12:15:00Z"


@pytest.mark.parametrize(
    ("kind", "impact", "action"),
    [
        (EVENT_SCHEDULED, "pause", "trigger"),
        (EVENT_STARTED, "restart", "trigger"),
        (EVENT_STARTED, "delete", "resolve"),
        (EVENT_ENDED, "pause", "resolve"),
    ],
)
def test_pagerduty_opens_and_resolves_one_incident(kind: str, impact: str, action: str) -> None:
    """All transitions have the event's id as their key; the end of the event resolves the incident,
    or the start of an event that deletes the VM, which sends no `ended`.
    """
    made = sample_record(record_type=kind, event_id="5D2C0B2E-1E7B-4B9B-9D1C-000000000001")
    record = replace(made, data={**made.data, "impact": impact})
    said = json.loads(rendered(EXAMPLES["PagerDuty"], record))
    assert (said["event_action"], said["dedup_key"]) == (action, made.event_id)
    severity = "warning" if impact == "pause" else "error"
    assert action == "resolve" or said["payload"]["severity"] == severity


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro t(n) %}{{ t(n + 1) if n < 60 }}{{ t(n + 1) if n < 60 }}{% endmacro %}{{ t(0) }}",
        "{% for a in range(99999) %}{% set b = range(99999)|map('string')|list %}{% endfor %}",
    ],
    ids=["a loop", "a macro that calls itself", "a filter"],
)
def test_a_rendering_without_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, template: str
) -> None:
    """A loop without output is ended, with its line, and leaves no thread."""
    monkeypatch.setattr("sinks.kinds.webhook.template._MAX_SECONDS", 0.2)
    threads, tracing = set(threading.enumerate()), sys.gettrace()
    with pytest.raises(RenderError, match=r"^template: .* more than 0.2 s, in line 1$"):
        rendered(template)
    assert set(threading.enumerate()) <= threads
    assert sys.gettrace() == tracing
