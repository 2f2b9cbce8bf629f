"""Names that CONTRIBUTING.md asks for, as far as a test can tell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from support.ground.doc_page import ROOT

PACKAGES = ("bridge", "console", "sinks", "wire", "tests/support")
PARTICIPLE = re.compile(r"[a-z]+(ed|ing)|done|told|ready|gone")
"""What something is called that says what has happened, or what goes on."""


def callbacks(node: ast.AST) -> Iterator[str]:
    """Yield the names of parameters and fields that are functions without a result."""
    for each in ast.walk(node):
        if isinstance(each, ast.arg):
            name, annotation = each.arg, each.annotation
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            name, annotation = each.target.id, each.annotation
        else:
            continue
        if annotation is not None and re.fullmatch(
            r"Callable\[.*, (None|object)\]", ast.unparse(annotation)
        ):
            yield name


def test_a_callback_is_named_on_x() -> None:
    """A function that is called once something has happened is named `on_x`."""
    found = [
        (file.relative_to(ROOT).as_posix(), name)
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        for name in callbacks(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert sum(name.startswith("on_") for _, name in found) > 15
    assert [each for each in found if PARTICIPLE.fullmatch(each[1])] == []


def notes(tree: ast.AST) -> Iterator[str]:
    """Yield the names of the functions that note something, by their docstrings."""
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef) and (ast.get_docstring(each) or "").startswith(
            "Note "
        ):
            yield each.name


def test_a_function_that_notes_what_happened_is_named_note_x() -> None:
    """A function that notes something has a verb in its name, and is called `note_x` if it would
    be called by what happened.
    """
    found = [
        (file.relative_to(ROOT).as_posix(), name)
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        for name in notes(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert sum("note_" in name for _, name in found) > 15
    what_happened = re.compile(rf"({PARTICIPLE.pattern}|(was|gave|stood|nothing)_\w+|up|down)")
    assert [each for each in found if what_happened.fullmatch(each[1])] == []
