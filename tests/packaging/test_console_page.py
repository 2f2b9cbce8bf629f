"""What the console's pages tell people to type: settings that load, a unit that systemd takes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.ground.doc_page import blocks
from support.monitoring import promtool

from console.config.load import load
from console.ingest.settings import read_sources

ROOT = Path(__file__).parent.parent.parent
UNIT = ROOT / "examples" / "seb-console.service"
analyzed = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


PAGES = [f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("console*.md"))]
INI = [each.text for page in PAGES for each in blocks(page, "ini")]
SETTINGS = [each for each in INI if each.startswith("# /etc/seb/console.env\n")]
YAML = [yaml.safe_load(each.text) for page in PAGES for each in blocks(page, "yaml")]


@pytest.mark.parametrize("text", SETTINGS, ids=range(len(SETTINGS)))
def test_the_settings_load(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file of settings is one that the console takes, sources included."""
    monkeypatch.chdir(tmp_path)
    lines = text.splitlines()[1:]
    settings = load(environ=dict(line.split("=", 1) for line in lines if line[0] != "#"))
    named = {
        each.lower() for each in re.findall(r"^SEB_CONSOLE_SOURCE__([A-Z]+)__", text, re.MULTILINE)
    }
    assert set(read_sources(settings.source)) == named


def test_each_source_has_its_settings() -> None:
    """The ways to connect it that the page begins with are all there."""
    text = "".join(SETTINGS)
    assert not [each for each in ("MQTT", "EVENTHUB", "WEBHOOK") if f"SOURCE__{each}__" not in text]


def test_the_values_are_settings_of_the_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the page has helm put into the console's file is what the console takes."""
    monkeypatch.chdir(tmp_path)
    (values,) = (each for each in YAML if "console" in each)
    given = values["console"]["settings"]
    environ = {f"SEB_CONSOLE_{name}": text for name, text in _flat(given)}
    assert list(read_sources(load(environ=environ).source)) == ["mqtt"]


def _flat(values: dict[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, dict) and name != "roles":
            yield from ((f"{name.upper()}__{inner}", text) for inner, text in _flat(value))
        else:
            yield name.upper(), value if isinstance(value, str) else json.dumps(value)


def test_the_scrape_configuration_fits_the_rules(tmp_path: Path) -> None:
    """Promtool takes it, and its job is one that SebConsoleDown knows."""
    (made,) = (each for each in YAML if "scrape_configs" in each)
    text = (ROOT / "helm" / "files" / "console-alerts.yaml").read_text(encoding="utf-8")
    (jobs,) = re.findall(r'job=~"([^"]+)"', text)
    assert re.fullmatch(jobs, made["scrape_configs"][0]["job_name"])
    if promtool.executable() is not None:
        path = tmp_path / "prometheus.yml"
        path.write_text(yaml.safe_dump(made))
        assert promtool.promtool("check", "config", "--syntax-only", str(path))[0] == 0


@analyzed
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """Nothing in it is misspelt, and little of the machine is exposed."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace("/opt/seb-console/bin/seb", "/bin/true"))
    environ = {**os.environ, "SYSTEMD_COLORS": "0"}
    for words in (
        ("verify", str(path)),
        ("security", "--offline=true", "--threshold=20", str(path)),
    ):
        done = subprocess.run(
            ["systemd-analyze", *words],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, "Unknown" in done.stderr) == (0, False), done.stderr
