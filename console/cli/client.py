"""The commands' client of a running console; no error shows the token."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import click
import requests

from console import http_client
from console.config.load import client_setting
from console.config.settings import DEFAULT_LISTEN
from console.errors import RefusedError
from sinks.shared.errors import ConfigurationError, NotPermittedError, UnreachableError
from sinks.shared.text import plain

_SECONDS: Final = 15.0
_MAX_BYTES: Final = 64 << 20
_PAGE_ITEMS: Final = 500


class ConsoleClient:
    """The API of the console at SEB_CONSOLE_URL, with the token of SEB_CONSOLE_TOKEN."""

    def __init__(self) -> None:
        self.url = (client_setting("url") or f"http://{DEFAULT_LISTEN}").rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise ConfigurationError("SEB_CONSOLE_URL: this is not an http:// or https:// URL")
        if "@" in self.url.partition("//")[2].partition("/")[0]:
            raise ConfigurationError(
                "SEB_CONSOLE_URL: leave out the name and password; a token goes into "
                "SEB_CONSOLE_TOKEN"
            )
        self._session = requests.Session()
        http_client.limit_session(self._session, self.url, seconds=_SECONDS, largest=_MAX_BYTES)
        token = client_setting("token")
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str, **params: object) -> dict[str, Any]:
        """Return the JSON of a path under `/api/v1/`. Raises `UnreachableError`,
        `NotPermittedError`, or `RefusedError` for other refusals.
        """
        found: dict[str, Any] = self._call("GET", path, params=_without_none(params)).json()
        return found

    def post(self, path: str, **fields: object) -> dict[str, Any]:
        """Return the JSON that answers a POST of these fields; raises what `get` raises."""
        found: dict[str, Any] = self._call("POST", path, json=fields).json()
        return found

    def lines(self, path: str, **params: object) -> list[dict[str, Any]]:
        """Return the objects of a path that answers with JSON lines; raises what `get` raises."""
        text = self._call("GET", path, params=_without_none(params)).text
        return [json.loads(line) for line in text.split("\n") if line]

    def _call(self, method: str, path: str, **options: Any) -> requests.Response:
        address = f"{self.url}/api/v1/{path}"
        try:
            # A redirect could carry the token to another host.
            response = self._session.request(method, address, allow_redirects=False, **options)
        except requests.RequestException as error:
            raise UnreachableError(
                f"no console answers at {self.url}: {http_client.reason_of(error)}. Start it with "
                "`seb console run`, or set SEB_CONSOLE_URL"
            ) from None
        message = _error_of(response)
        if response.status_code in (401, 403):
            raise NotPermittedError(f"{self.url}: {message}; see SEB_CONSOLE_TOKEN")
        if response.status_code >= 500:  # noqa: PLR2004
            raise UnreachableError(f"{self.url}: {message}")
        if not response.ok or response.is_redirect:
            raise RefusedError(message, status=response.status_code, answer=_object(response))
        return response

    def read_list(self, path: str, limit: int, **params: object) -> list[dict[str, Any]]:
        """Return up to `limit` items of a list, read page by page."""
        items: list[dict[str, Any]] = []
        following: str | None = None
        while len(items) < limit:
            page = self.get(
                path, limit=min(_PAGE_ITEMS, limit - len(items)), cursor=following, **params
            )
            items += page["items"]
            following = page["next"]
            if following is None:
                break
        return items


def _without_none(params: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in params.items() if value is not None}


def _object(response: requests.Response) -> dict[str, Any]:
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _error_of(response: requests.Response) -> str:
    return plain(_object(response).get("error") or f"HTTP {response.status_code}")


def event_path(event_id: str) -> str:
    """Return the path of an event; its id may have any characters."""
    return f"events/{quote(event_id, safe='')}"


Columns = Mapping[str, Callable[[dict[str, Any]], object]]
"""The heads of columns, and for each the function of its cells."""


def show(
    items: Sequence[dict[str, Any]],
    columns: Columns,
    *,
    as_json: bool,
    nothing: str,
) -> None:
    """Print items as JSON, or as a table with these columns; `nothing` is printed instead of an
    empty table.
    """
    if as_json:
        click.echo(json.dumps({"items": items}, indent=2))
    elif items:
        lines = [[cell(item) for cell in columns.values()] for item in items]
        click.echo(table([list(columns), *lines]))
    else:
        click.echo(nothing)


def table(rows: list[list[object]]) -> str:
    """Return rows as aligned columns."""
    texts = [[plain(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in texts) for at in range(len(texts[0]))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in texts
    )
    return "\n".join(lines)
