"""The tables of log lines have every action that the programs log."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from support.ground.doc_page import ROOT

SHARED = ("sinks/driver.py", "sinks/shared")
"""What both programs log."""
OF_THE_AUDIT = ("console/audit", "console/web/pages/audit_page.py", "console/db")
"""Here an action is a word of the audit."""


def actions(node: ast.AST) -> Iterator[str]:
    """Yield the actions that an expression may be: texts, and the choice between two texts."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from (*actions(node.body), *actions(node.orelse))


def logged(*places: str) -> set[str]:
    """Return the actions in the files of these folders."""
    found = set[str]()
    for place in places:
        path = ROOT / place
        for file in [path] if path.is_file() else path.rglob("*.py"):
            name = file.relative_to(ROOT).as_posix()
            if name.startswith(OF_THE_AUDIT) and name != "console/db/connection/clock.py":
                continue
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Dict):
                    continue
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "action":
                        found.update(actions(value))
    return found


@pytest.mark.parametrize(
    ("program", "page"), [("bridge", "reference.md"), ("console", "console-reference.md")]
)
def test_every_action_of_a_program_is_in_its_table(program: str, page: str) -> None:
    """The reference of a program lists each action of its log, and of what both programs share."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    table = text.split("\n## Log lines\n")[1].split("\n## ")[0]
    listed = set(re.findall(r"`([a-z_.]+)`", table))
    found = logged(program, *SHARED)
    assert len(found) > 20
    assert found - listed == set()
