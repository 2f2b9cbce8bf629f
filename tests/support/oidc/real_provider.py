"""A real OpenID provider, oidc-provider of npm, in a process of its own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from html import unescape
from pathlib import Path
from typing import Self
from urllib.parse import urljoin

import pytest
import requests
from support.eventually import eventually
from support.ports import free_port

HERE = Path(__file__).parent
MODULES = Path(__file__).parents[3] / "build" / "oidc-provider" / "node_modules"
"""Where `make tools` puts it."""
_ACTION = re.compile(r'<form[^>]*action="([^"]+)"')


class OidcProvider:
    """It runs as a context manager; `groups` are those of each user."""

    def __init__(
        self,
        redirect_uri: str,
        *,
        secret: str | None = "s3cret:/ %",
        algorithm: str = "RS256",
        groups: dict[str, list[str]] | None = None,
        claim: str = "groups",
    ) -> None:
        node = shutil.which("node")
        if node is None or not (MODULES / "oidc-provider").is_dir():
            pytest.skip("no OpenID provider: `make tools` installs it, if there is npm")
        self.node = node
        self.port = free_port()
        self.issuer = f"http://127.0.0.1:{self.port}"
        self.settings = {
            "port": self.port,
            "clientId": "console",
            "clientSecret": secret,
            "redirectUri": redirect_uri,
            "algorithm": algorithm,
            "groups": groups or {},
            "claim": claim,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start, with new keys; returns once it answers.

        Raises `RuntimeError` if it ends, `AssertionError` if three processes in turn are not up
        within half a minute each: on a machine that stalled, one never listened.
        """
        for _ in range(3):
            self._start_process()
            try:
                eventually(self._answers, what="the provider", timeout=30)
            except AssertionError as error:
                trouble = f"{error}; it answered {self._answered}, and wrote: {self._output()}"
                self.stop()
            else:
                return self
        raise AssertionError(trouble)

    def _start_process(self) -> None:
        self._answered = "nothing yet"
        self._written = tempfile.TemporaryFile("w+")  # noqa: SIM115  # until it is stopped
        self.process = subprocess.Popen(
            [self.node, str(HERE / "provider.mjs"), str(MODULES), json.dumps(self.settings)],
            stdout=self._written,
            stderr=subprocess.STDOUT,
        )

    def _answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"the provider has ended: {self._output()}")
        address = f"http://127.0.0.1:{self.port}/.well-known/openid-configuration"
        try:
            answer = requests.get(address, timeout=5)
        except requests.RequestException as error:
            self._answered = repr(error)
            return False
        self._answered = f"{answer.status_code}: {answer.text[:500]}"
        return answer.status_code == 200

    def _output(self) -> str:
        self._written.seek(0)
        return self._written.read()[-2000:]

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
            self._written.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class Browser:
    """What a browser does: it follows redirects, keeps cookies, and fills in the login's forms."""

    def __init__(self, console: str) -> None:
        self.console = console
        self.http = requests.Session()
        self.http.trust_env = False

    def get(self, path: str, **headers: str) -> requests.Response:
        """Open a page, and go wherever it leads."""
        return self.http.get(self.console + path, headers=headers, timeout=30)

    def log_in(self, name: str, path: str = "/") -> requests.Response:
        """Open a page as a stranger, log in as somebody, agree, and come back."""
        return self.fill_in(self.get(path), name)

    def fill_in(self, page: requests.Response, name: str) -> requests.Response:
        """Go through the provider's forms, until it leads back to the console."""
        for _ in range(3):
            if page.url.startswith(self.console):
                return page
            form = _ACTION.search(page.text)
            assert form, page.text
            prompt = "login" if 'value="login"' in page.text else "consent"
            fields = {"prompt": prompt, "login": name, "password": "any"}
            address = urljoin(page.url, unescape(form[1]))
            page = self.http.post(address, data=fields, timeout=30)
        return page

    def post(self, path: str, **headers: str) -> requests.Response:
        """Send a form of the console's own page."""
        own = {"Sec-Fetch-Site": "same-origin", "Origin": self.console, **headers}
        return self.http.post(self.console + path, headers=own, timeout=30)
