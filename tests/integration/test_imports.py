"""Imports: a start loads little, and no sink that is not configured."""

import sys
from collections.abc import Mapping
from pathlib import Path

from support.process.bridge import run_seb
from support.process.launch import Launch

from sinks.registry import BUILT_IN

# `-X importtime` does not see what importlib imports.
LISTING = """
import atexit, os, sys
leave = os._exit
def note(code=None):
    with open("modules", "w") as file:
        print(*sys.modules, file=file)
    if code is not None:
        leave(code)
os._exit = note
atexit.register(note)
from bridge.cli import main
main()
"""
SINKS = {f"sinks.kinds.{kind}" for kind in BUILT_IN}
# Of the extra `console` alone: a bridge is installed without them.
OF_THE_CONSOLE = {
    "alembic",
    "console",
    "httptools",
    "psycopg",
    "sqlalchemy",
    "starlette",
    "uvicorn",
}
WITHOUT_THE_EXTRA = f"import sys\nsys.modules.update(dict.fromkeys({sorted(OF_THE_CONSOLE)}))\n"
HEAVY = {"azure", "paho", "jinja2", "apscheduler", "requests", "pydantic", "sqlite3", "ssl"}


def loaded(
    *arguments: str, home: Path, env: Mapping[str, str] | None = None, before: str = ""
) -> set[str]:
    """Return the modules that a command imports; `before` runs first."""
    result = run_seb(
        *arguments, home=home, env=env, prefix=(sys.executable, "-c", before + LISTING)
    )
    assert result.code == 0, result.err
    return set((home / "modules").read_text().split())


def test_version_loads_next_to_nothing(tmp_path: Path) -> None:
    """`seb version` imports neither settings nor sinks, and no library but click."""
    found = loaded("version", home=tmp_path)
    assert (
        found & (HEAVY | SINKS | {"bridge.config.settings", "bridge.simulator", "asyncio"}) == set()
    )
    assert {name for name in found if name.startswith("bridge")} == {
        *("bridge", "bridge.cli", "bridge.cli.version", "bridge.version")
    }


def test_a_run_loads_the_sinks_that_are_named(launch: Launch) -> None:
    """A run with only a file sink imports no MQTT, AMQP, templates or Kubernetes."""
    env = {**launch.env, "SEB_SINK__OPS__KIND": "file", "SEB_SINK__OPS__PATH": "records"}
    found = loaded("run", "--once", home=launch.home, env=env)
    assert found & SINKS == {"sinks.kinds.file"}
    assert found & {"azure", "paho", "jinja2", "bridge.simulator"} == set()
    assert found & {"sinks.kinds.kubernetes", "lightkube", "httpx2"} == set()
    assert found >= {"apscheduler", "requests", "sqlite3"}


def test_a_bridge_does_without_the_console(launch: Launch) -> None:
    """A run with a sink of each kind that needs no cluster imports nothing of the console, and
    works without it.
    """
    env = {
        **launch.env,
        "SEB_SINK__FILE__PATH": "records",
        "SEB_SINK__PROGRAM__COMMAND": '["true"]',
        "SEB_SINK__WEBHOOK__URL": "http://127.0.0.1:9/hook",
        "SEB_SINK__WEBHOOK__TEMPLATE": "{{ record.id }}",
        "SEB_SINK__MQTT__HOST": "127.0.0.1",
        "SEB_SINK__MQTT__PORT": "9",
        "SEB_SINK__EVENTHUB__CONNECTION_STRING": (
            "Endpoint=sb://127.0.0.1:9/;SharedAccessKeyName=send;SharedAccessKey=c2VjcmV0;"
            "EntityPath=hub;UseDevelopmentEmulator=true"
        ),
    }
    found = loaded("check", "--offline", home=launch.home, env=env)
    assert {name.partition(".")[0] for name in found} & OF_THE_CONSOLE == set()
    assert found >= SINKS - {"sinks.kinds.stdout", "sinks.kinds.kubernetes"}
    without = loaded("check", "--offline", home=launch.home, env=env, before=WITHOUT_THE_EXTRA)
    assert without - OF_THE_CONSOLE == found
    env = {name: value for name, value in env.items() if "WEBHOOK" in name or "SINK" not in name}
    ran = loaded("run", "--once", home=launch.home, env=env | {"SEB_SINK__WEBHOOK__TYPES": "[]"})
    assert {name.partition(".")[0] for name in ran} & OF_THE_CONSOLE == set()


def test_only_a_template_loads_jinja(launch: Launch) -> None:
    """A webhook without a template does not import Jinja2."""
    env = {**launch.env, "SEB_SINK__WEBHOOK__URL": "https://127.0.0.1:9/hook"}
    plain = loaded("check", "--offline", home=launch.home, env=env)
    env["SEB_SINK__WEBHOOK__TEMPLATE"] = "{{ record.id }}"
    templated = loaded("check", "--offline", home=launch.home, env=env)
    assert ("sinks.kinds.webhook" in plain, "jinja2" in plain) == (True, False)
    assert "jinja2" in templated
