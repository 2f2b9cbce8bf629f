"""A real Prometheus on a free loopback port that scrapes one bridge once a second."""

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import yaml
from support.monitoring.promtool import ALERTS
from support.patience import PATIENCE
from support.ports import free_port


def executable() -> str | None:
    """Where Prometheus is; None where the machine has none."""
    return shutil.which("prometheus")


class Prometheus:
    """It has the rules that are shipped, and the job seb with one target."""

    def __init__(self, directory: Path, target: str) -> None:
        self._directory = directory
        self._target = target
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [
                {"job_name": "seb", "static_configs": [{"targets": [self._target]}]}
            ],
        }
        path = self._directory / "prometheus.yaml"
        path.write_text(yaml.safe_dump(config))
        found = executable()
        assert found is not None
        self._process = subprocess.Popen(
            [
                found,
                f"--config.file={path}",
                f"--storage.tsdb.path={self._directory / 'prometheus'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
                "--log.level=error",
            ]
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression gives now. Raises `ValueError` where it gives an error."""
        answer = self._get("/api/v1/query", query=expression)
        if answer["status"] != "success":
            raise ValueError(f"{expression}: {answer['error']}")
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def rule_errors(self) -> dict[str, str]:
        """What went wrong with each rule when it was last evaluated; empty for nothing."""
        groups = self._get("/api/v1/rules")["data"]["groups"]
        return {
            rule["name"]: rule.get("lastError", "") for each in groups for rule in each["rules"]
        }

    def wait_for(self, expressions: Sequence[str]) -> None:
        """Wait until each expression has given something. Raises `AssertionError`."""
        left, deadline = list(expressions), time.monotonic() + PATIENCE
        while left:
            with suppress(urllib.error.URLError, ConnectionError):  # before it listens
                left = [each for each in left if not self.query(each)]
            if left and time.monotonic() > deadline:
                raise AssertionError(f"nothing came of {left}")
            time.sleep(0.2)

    def _get(self, path: str, **query: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._port}{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                body = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                body = error.read()
        read: dict[str, Any] = json.loads(body)
        return read
