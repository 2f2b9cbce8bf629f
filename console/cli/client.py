"""How the client commands speak to a running console; a token never stands in an error."""

from __future__ import annotations

from typing import Any, Final

import requests

from console.config.load import client_setting
from console.config.settings import DEFAULT_LISTEN
from console.errors import ConfigurationError, ConsoleError, NotPermittedError, UnreachableError

_SECONDS: Final = 15.0
_PAGE: Final = 500


class Client:
    """The API of the console at SEB_CONSOLE_URL, with the token of SEB_CONSOLE_TOKEN."""

    def __init__(self) -> None:
        self.url = (client_setting("url") or f"http://{DEFAULT_LISTEN}").rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise ConfigurationError("SEB_CONSOLE_URL: this is not an http:// or https:// URL")
        self._session = requests.Session()
        token = client_setting("token")
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str, **params: object) -> dict[str, Any]:
        """The JSON of a path under `/api/v1/`.

        Raises `UnreachableError`, `NotPermittedError`, or `ConsoleError` for other refusals.
        """
        return self.call("GET", path, params={k: v for k, v in params.items() if v is not None})

    def call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """As `get`, with any method and any option of requests."""
        address = f"{self.url}/api/v1/{path}"
        try:
            # A redirect could carry the token to another host.
            response = self._session.request(
                method, address, timeout=_SECONDS, allow_redirects=False, **options
            )
        except requests.RequestException as error:
            raise UnreachableError(
                f"no console answers at {self.url} ({type(error).__name__}); start it with "
                "`seb console run`, or set SEB_CONSOLE_URL"
            ) from None
        told = _told(response)
        if response.status_code in (401, 403):
            raise NotPermittedError(f"{self.url}: {told}; see SEB_CONSOLE_TOKEN")
        if response.status_code >= 500:  # noqa: PLR2004
            raise UnreachableError(f"{self.url}: {told}")
        if not response.ok or response.is_redirect:
            raise ConsoleError(f"{self.url}: {told}")
        found: dict[str, Any] = response.json()
        return found

    def listed(self, path: str, limit: int, **params: object) -> list[dict[str, Any]]:
        """Up to `limit` items of a list, page after page."""
        items: list[dict[str, Any]] = []
        following: str | None = None
        while len(items) < limit:
            page = self.get(path, limit=min(_PAGE, limit - len(items)), cursor=following, **params)
            items += page["items"]
            following = page["next"]
            if following is None:
                break
        return items


def _told(response: requests.Response) -> str:
    try:
        found = response.json()
        return str(found["error"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {response.status_code}"


def plain(value: object) -> str:
    """A text for a terminal: no sign in it is one that a terminal obeys."""
    text = "-" if value is None else str(value)
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text)


def table(rows: list[list[object]]) -> str:
    """Columns, aligned."""
    texts = [[plain(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in texts) for at in range(len(texts[0]))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in texts
    )
    return "\n".join(lines)
