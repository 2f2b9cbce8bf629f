"""Write the parts of the documentation that follow from the code, or check that they are current.

`python docs/generate.py` writes; `--check` changes nothing and fails where something is out of
date. A generated part of a page stands between `<!-- begin NAME -->` and `<!-- end NAME -->`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

sys.path.append(str(Path(__file__).resolve().parent.parent))

from bridge.api.metric_definitions import DEFINITIONS
from bridge.approval import transitions
from bridge.cli import COMMANDS, module_of
from bridge.cli.config import env_file
from bridge.config import reference
from bridge.config.approval import Rule
from bridge.config.reference import Variable
from bridge.preparation import transitions as preparation_transitions
from bridge.simulator.scenarios import SCENARIOS
from console.approvals import decision_requests, turn_requests
from console.approvals import transitions as decision_transitions
from console.approvals.refusal_reasons import REASONS
from console.turns import transitions as turn_transitions
from docs import console_parts, survival_page
from docs.chart_schema import SCHEMA_FILE, schema_text
from sinks import registry
from sinks.kinds.program.variables import VARIABLES
from sinks.shared import errors
from wire.schema import schema

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = (
    "README.md",
    "docs/reference.md",
    "docs/console-reference.md",
    "docs/prepare-and-recover.md",
)
_PART: Final = re.compile(r"(<!-- begin (\w[\w-]*) -->\n).*?(<!-- end \2 -->)", re.DOTALL)
_MEANINGS: Final = {
    "OK": "fine",
    "NO": "the answer is no",
    "USAGE": "the command line is wrong",
    "UNREACHABLE": "IMDS or a sink is unreachable",
    "BUG": "a bug in the bridge",
    "NO_REPLY": "no reply in time, or try again later",
    "NOT_PERMITTED": "not permitted",
    "CONFIGURATION": "a setting or the state directory is wrong",
}


def main() -> int:
    """Write or check every file; the exit code says whether all is current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    stale = [path for path, text in files().items() if current(path) != text]
    for path in stale:
        if not check:
            path.write_text(files()[path], encoding="utf-8", newline="\n")
        verb = "is out of date: run `make docs`" if check else "written"
        sys.stderr.write(f"{path.relative_to(ROOT)} {verb}\n")
    return 1 if check and stale else 0


def files() -> dict[Path, str]:
    """Every generated file and what it should hold."""
    made = {ROOT / ".env.example": env_file(), SCHEMA_FILE: schema_text()}
    made[survival_page.PAGE] = survival_page.text(survival_page.load())
    parts, used = dict(generated()), set[str]()

    def fill(found: re.Match[str]) -> str:
        used.add(found[2])
        return f"{found[1]}{parts[found[2]]}{found[3]}"

    for page in PAGES:
        made[ROOT / page] = _PART.sub(fill, current(ROOT / page))
    if missing := sorted(parts.keys() - used):
        raise SystemExit(
            f"no page has the part {', '.join(missing)}: put `<!-- begin NAME -->` and "
            f"`<!-- end NAME -->` under a heading of one of {', '.join(PAGES)}"
        )
    return made


def current(path: Path) -> str:
    """What the file holds now."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def generated() -> Iterator[tuple[str, str]]:
    """Every generated part by its name."""
    yield "commands", table(("command", "what it does"), commands())
    yield "exit-codes", table(("code", "meaning"), exit_codes())
    yield (
        "variables",
        table(("variable", "default", "meaning"), map(variable_row, reference.bridge_variables())),
    )
    yield "rule-keys", table(("key", "default", "meaning"), rule_rows())
    for kind in registry.BUILT_IN:
        rows = map(variable_row, reference.sink_variables(kind))
        yield f"sink-{kind}", table(("variable", "default", "meaning"), rows)
    yield (
        "scenarios",
        table(
            ("scenario", "what happens"), ((f"`{n}`", s.description) for n, s in SCENARIOS.items())
        ),
    )
    yield "figures", figures()
    yield "survival", survival_page.summary(survival_page.load())
    yield (
        "metrics",
        table(
            ("metric", "kind", "labels", "meaning"),
            (
                (f"`{m.name}`", m.kind, ", ".join(f"`{each}`" for each in m.labels), m.help)
                for m in DEFINITIONS
            ),
        ),
    )
    yield (
        "program-variables",
        table(("variable", "what it is"), ((f"`{v.name}`", v.meaning) for v in VARIABLES)),
    )
    yield "record", table(("field", "type", "meaning"), record_rows())
    stages = (each.meaning for each in transitions.ApprovalStage)
    yield "approval", table(("the first that holds", *stages), transitions.printed())
    head = ("stage", "what happens", "next stage")
    yield "preparation", table(head, preparation_transitions.printed())
    head = ("state", "what happens", "next state")
    yield "console-turns", table(head, turn_transitions.printed())
    head = ("request", "the first that holds", "what becomes of it")
    yield "console-requests", table(head, decision_requests.printed())
    refusals = ((f"`{each}`", REASONS[each].sentence) for each in turn_requests.REFUSALS)
    yield "console-turn-refusals", table(("reason", "answer"), refusals)
    head = ("stage", "the first that holds", "what the console does")
    yield "console-decisions", table(head, decision_transitions.printed())
    commands_of_console = (
        (f"`seb console {before}{usage(each)}`", words)
        for before, each, words in console_parts.command_rows()
    )
    yield "console-commands", table(("command", "what it does"), commands_of_console)
    head = ("variable", "default", "meaning")
    yield "console-variables", table(head, console_parts.variable_rows())
    yield "console-sources", table(head, console_parts.source_rows())


def figures() -> str:
    """What `make bench` measured last, the most telling of it, in words."""
    path = ROOT / "docs" / "benchmarks.json"
    if not path.exists():
        return "Not measured yet: `make bench`.\n"
    found = json.loads(current(path))
    latency, idle, start, drain = (
        found[name]["figures"] for name in ("latency", "idle", "start", "drain")
    )
    late = latency["mqtt"]
    mqtt = idle["mqtt"]
    sent = drain["mqtt"]
    rows = [
        (
            "IMDS serves a change \u2192 an MQTT subscriber has the record, synced on the way",
            f"{late['median_ms']} ms median, {late['p99_ms']} ms p99",
            f"{late['median_ms'] / late['bare_median_ms']:.2f} \u00d7 a loop that stores nothing",
        ),
        (
            "CPU at one poll a second, MQTT connected, metrics served",
            f"{mqtt['cpu_ms'] / 10:.2f} % of a core",
            f"{mqtt['cpu_ms'] / idle['bare']['cpu_ms']:.2f} \u00d7 a bare loop of requests",
        ),
        (
            "resident memory, MQTT connected, metrics served",
            f"{mqtt['mib']} MiB",
            f"{mqtt['mib'] / idle['imports_mqtt']['mib']:.2f} \u00d7 importing the libraries",
        ),
        (
            "a backlog to an MQTT broker, in order, QoS 1",
            f"{sent['per_second']:,} records a second",
            f"{sent['per_second'] / sent['bare_per_second']:.2f} \u00d7 paho alone",
        ),
        ("start of the process \u2192 first poll", f"{start['first_poll_s']['mqtt']} s", ""),
        ("`seb version`", f"{start['command_s']['version']} s", ""),
    ]
    return (
        table(("what", "figure", "against"), rows)
        + f"\nMeasured on {found['latency']['machine']} with `make bench`; "
        "[docs/benchmarks.md](docs/benchmarks.md) has all of it, with the limits. The time that a "
        "change waits for the next poll is taken out; it is half a second on average.\n"
    )


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines
    )


def commands() -> Iterator[tuple[str, str]]:
    """Each command and its subcommands with their options."""
    for name, summary in COMMANDS.items():
        command: click.Command = importlib.import_module(module_of(name)).command
        if isinstance(command, click.Group):
            for inner in command.commands.values():
                yield f"`seb {name} {usage(inner)}`", inner.get_short_help_str(limit=200)
        else:
            yield f"`seb {usage(command)}`", summary


def usage(command: click.Command) -> str:
    """The command's name with its arguments and options, as a usage line has them."""
    words = [command.name or ""]
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            words.append(parameter.make_metavar(click.Context(command)))
        elif isinstance(parameter, click.Option) and not parameter.hidden:
            takes = "" if parameter.is_flag else f" {option_metavar(parameter, command)}"
            words.append(f"[{parameter.opts[0]}{takes}]")
    return " ".join(words)


def option_metavar(option: click.Option, command: click.Command) -> str:
    """What stands for an option's value."""
    return option.metavar or option.make_metavar(click.Context(command))


def exit_codes() -> Iterator[tuple[str, str]]:
    """Each exit code that a command can end with."""
    for name, meaning in _MEANINGS.items():
        yield str(getattr(errors, name)), meaning


def variable_row(variable: Variable) -> tuple[str, str, str]:
    """A variable's row; one that must be given has no default."""
    default = "**required**" if variable.default is None else f"`{variable.default}`"
    secret = " (secret)" if variable.secret else ""
    return f"`{variable.name}`", default if default != "``" else "", variable.description + secret


def rule_rows() -> Iterator[tuple[str, str, str]]:
    """Each key of a rule, as JSON has it."""
    for name, field in Rule.model_fields.items():
        default = "**required**" if field.is_required() else json_of(field.default)
        yield f"`{name}`", default, field.description or ""


def json_of(default: object) -> str:
    """A default as JSON; nothing where leaving the key out means that it does not count."""
    return "" if default in (None, ()) else f"`{json.dumps(default)}`"


def record_rows() -> Iterator[tuple[str, str, str]]:
    """Each field of a record, from its schema."""
    whole = schema()
    for name, field in whole["properties"].items():
        if name != "data":
            yield f"`{name}`", type_of(field), field.get("description", "")
    yield from data_rows(whole, whole["$defs"]["eventData"], "data")


def data_rows(
    whole: Mapping[str, Any], node: Mapping[str, Any], path: str
) -> Iterator[tuple[str, str, str]]:
    """The fields below a place in the schema, references followed."""
    for name, raw in node["properties"].items():
        field = whole["$defs"][raw["$ref"].rpartition("/")[2]] if "$ref" in raw else raw
        yield f"`{path}.{name}`", type_of(field), field.get("description", "")
        if "properties" in field:
            yield from data_rows(whole, field, f"{path}.{name}")


def type_of(field: Mapping[str, Any]) -> str:
    """The type of a field in a word or two."""
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join("null" if each is None else f"`{each}`" for each in field["enum"])
    kinds = field.get("type", "")
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


if __name__ == "__main__":
    raise SystemExit(main())
