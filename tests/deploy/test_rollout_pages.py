"""docs/rollout.md and docs/networks.md: every file, link, command and placeholder is there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.process.bridge import run_seb

ROOT = Path(__file__).parent.parent.parent
RECIPES = sorted(path for path in (ROOT / "deploy" / "recipes").iterdir() if path.is_dir())
PAGES = (*(ROOT / "docs" / name for name in ("rollout.md", "networks.md")), *ROOT.glob("[RS]E*.md"))


def text_of(path: Path) -> str:
    """The text of a page."""
    return path.read_text(encoding="utf-8")


def blocks(path: Path) -> list[str]:
    """Its blocks of code."""
    return re.findall(r"^```[a-z]*\n(.*?)^```", text_of(path), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_each_placeholder_is_explained(page: Path) -> None:
    """What stands in angle brackets in a command stands in a sentence of the page as well."""
    text = text_of(page)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    used = {each for block in blocks(page) for each in re.findall(r"<[A-Z_]+>", block)}
    assert [each for each in sorted(used) if f"`{each}`" not in prose] == []


def test_every_file_has_its_place_in_the_page() -> None:
    """Nothing lies in deploy/ that the page does not lead to."""
    text = text_of(ROOT / "docs" / "rollout.md")
    named = ("ansible/roles/", "ansible/inventory.example.yml", "recipes/README.md")
    for path in sorted((ROOT / "deploy").rglob("*")):
        name = path.relative_to(ROOT / "deploy").as_posix()
        if path.is_file() and not name.startswith((named[0], "recipes/")):
            assert name in text or path.name in text, name
    assert all(each in text or each.split("/")[1] in text for each in named)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_every_file_of_a_recipe_has_its_place_in_its_page(recipe: Path) -> None:
    """Each recipe has its parts, and its page leads to all of them."""
    text = text_of(recipe / "README.md")
    program, group = f"{recipe.name}.sh", "group.json"
    found = {path.name for path in recipe.iterdir()}
    assert {"README.md", "seb.env", program, group} <= found
    assert [each for each in sorted(found - {"README.md"}) if each not in text] == []
    assert f"({recipe.name}/README.md)" in text_of(recipe.parent / "README.md")


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_a_recipe_starts_with_the_settings_of_its_vm(recipe: Path) -> None:
    """The bridge reads its settings when it starts: the page has them changed before that."""
    install = next(each for each in blocks(recipe / "README.md") if "/seb.env" in each)
    lines = install.splitlines()
    assert lines.index("sudoedit /etc/seb/seb.env") < lines.index("sudo systemctl restart seb")


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_the_settings_of_a_recipe_are_valid(recipe: Path, tmp_path: Path) -> None:
    """They are accepted as they stand, and the recipe is the preparation of its VM."""
    lines = [line for line in text_of(recipe / "seb.env").splitlines() if line.startswith("SEB_")]
    result = run_seb("config", "show", home=tmp_path, env=dict(x.split("=", 1) for x in lines))
    assert result.code == 0, result.err
    assert re.search(r"SINK__RECIPE__PREPARES\W+true", result.out), result.out
    assert json.loads(text_of(recipe / "group.json"))[0]["at_most"] == 1


def the_block(first: str) -> str:
    """The block of the page that has these words."""
    (found,) = (each for each in blocks(ROOT / "docs" / "rollout.md") if first in each)
    return found


@pytest.mark.skipif(sys.platform == "win32", reason="a script of Linux")
@pytest.mark.parametrize(
    ("az", "code", "kept"),
    [
        ("echo s3cret", 0, "s3cret\n"),
        ("exit 1", 1, "old\n"),
        ("true", 1, "old\n"),
        ("case $1 in login) exit 1;; esac; echo s3cret", 1, "old\n"),
    ],
    ids=["given", "refused", "empty", "no identity"],
)
def test_the_secret_of_a_vault(az: str, code: int, kept: str, tmp_path: Path) -> None:
    """A vault that refuses or gives nothing leaves the file that is there; the script fails."""
    files = tmp_path / "files"
    files.mkdir()
    (files / "mqtt-password").write_text("old\n")
    for name, text in (("az", az), ("chgrp", "true")):
        fake = tmp_path / name
        fake.write_text(f"#!/bin/sh\n{text}\n")
        fake.chmod(0o755)
    script = the_block("az keyvault secret show").replace("/etc/seb/files", str(files))
    script = script.replace("<VAULT>", "v").replace("<SECRET>", "s")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", script], env=environment, check=False, capture_output=True)
    assert min(done.returncode, 1) == code
    assert (files / "mqtt-password").read_text() == kept
    assert [each.name for each in files.iterdir()] == ["mqtt-password"]


def test_the_rule_of_the_page_is_valid(tmp_path: Path) -> None:
    """So are the settings of the first VM."""
    page = ROOT / "docs" / "rollout.md"
    (rule,) = re.findall(r"^SEB_APPROVAL__RULES=.*$", text_of(page), re.MULTILINE)
    (first,) = (each for each in blocks(page) if "sudo seb check" in each)
    lines = [rule, *re.findall(r"SEB_[A-Z_]+=[^'\n]+", first)]
    result = run_seb("config", "show", home=tmp_path, env=dict(x.split("=", 1) for x in lines))
    assert result.code == 0, result.err
    assert "own-reboots" in result.out


def test_the_variables_of_the_page_are_the_roles() -> None:
    """What the page has people write below `vars` is what the role's defaults explain, in kind."""
    role = ROOT / "deploy" / "ansible" / "roles" / "seb" / "defaults" / "main.yml"
    known = yaml.safe_load(text_of(role))
    shown = yaml.safe_load(the_block("seb_enrolment:"))
    assert {name: type(value) for name, value in shown.items()} == {
        name: type(known[name]) for name in shown
    }
