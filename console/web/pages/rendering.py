"""Makes an answer from a template and values. Every text is escaped, and no file comes from another
host.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from console.web.pages import formatting, labels

_FRESH: Final[Mapping[str, str]] = MappingProxyType({"Cache-Control": "no-store"})
_KEPT: Final[Mapping[str, str]] = MappingProxyType(
    {"Cache-Control": "public, max-age=31536000, immutable"}
)
_STATIC: Final[Mapping[str, str]] = MappingProxyType(
    {
        "console.css": "text/css",
        "decisions.css": "text/css",
        "console.js": "text/javascript",
        "idiomorph.js": "text/javascript",
        "icon.svg": "image/svg+xml",
    }
)


class _Files:
    """The style sheets and scripts, read once; their addresses change with their content."""

    def __init__(self) -> None:
        root = resources.files("console.web.pages").joinpath("static")
        self._bodies = {name: root.joinpath(name).read_bytes() for name in _STATIC}
        self._versions = {
            name: sha256(body).hexdigest()[:12] for name, body in self._bodies.items()
        }

    def address(self, name: str) -> str:
        """Return the address of the file for a page."""
        return f"/static/{name}?v={self._versions[name]}"

    def answer(self, name: str) -> Response:
        """Return the file, or 404."""
        body = self._bodies.get(name)
        if body is None:
            return Response("there is no such file\n", 404, media_type="text/plain")
        return Response(body, 200, _KEPT, _STATIC[name])


FILES: Final = _Files()


def environment() -> Environment:
    """Return the templates. All their output is escaped, and every invisible character
    written out.
    """
    made = Environment(
        loader=PackageLoader("console.web.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=formatting.shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "coded": formatting.coded,
        "decider": labels.decider,
        "hour_and_minute": formatting.hour_and_minute,
        "outside": formatting.outside,
        "span": formatting.span,
        "plural": formatting.plural,
    }
    made.globals |= {
        "contact_meanings": labels.CONTACT_MEANINGS,
        "condition_meanings": labels.CONDITION_MEANINGS,
        "decision_labels": labels.DECISIONS,
        "turn_labels": labels.TURNS,
        "address_of": FILES.address,
    }
    return made


class Renderer:
    """Draws templates."""

    def __init__(self) -> None:
        self._templates = environment()

    def answer(
        self, template: str, *, now: float, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """Return the page of a template; the page shows `now`, in seconds since 1970, as its
        time.
        """
        moment = datetime.fromtimestamp(now, UTC)
        body = self._templates.get_template(template).render(
            **values,
            now=now,
            now_ms=int(now * 1000),
            now_clock=f"{moment:%H:%M:%S} UTC",
            at=lambda at: formatting.clock(at, now),
            ago=lambda at: formatting.ago(at, now),
            left=lambda at: formatting.left(at, now),
        )
        return HTMLResponse(body, status, _FRESH)
