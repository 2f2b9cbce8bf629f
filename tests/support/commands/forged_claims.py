"""Forgeries with a good signature: of the wrong type, misdirected, out of their time, or about an
event in another state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from support.commands.control_plane import ISSUER, LEAVE_OUT
from support.commands.forgery import Forgery, Make, Scene


def _twice(scene: Scene, name: str, value: Any) -> bytes:
    """Claims with one key twice: the good one last, as lenient parsers take it."""
    good = json.dumps(scene.claims())
    return scene.text("{" + f'"{name}": {json.dumps(value)}, ' + good[1:])


def _raw(scene: Scene, name: str, text: str) -> bytes:
    """A claim with a literal that `json` would not write."""
    good = json.dumps(scene.claims(**{name: "@"}))
    return scene.text(good.replace('"@"', text))


def _claims() -> Iterator[Forgery]:
    for name in ("iss", "sub", "iat", "nbf", "exp", "jti", "act", "evt", "evh"):
        yield _claim(f"no {name}", name, LEAVE_OUT)
        for what, value in (("null", None), ("a list", ["x"]), ("an object", {}), ("true", True)):
            yield _claim(f"{name} {what}", name, value)
    for name in ("iss", "sub", "jti", "act", "evt", "evh", "rsn"):
        yield _claim(f"{name} a number", name, 1)
        yield _claim(f"{name} empty", name, "")
        yield _claim(f"{name} too long", name, "x" * 513)
        yield _claim(f"{name} with a newline", name, "x\nactor=root")
        yield _claim(f"{name} with a NUL", name, "x\0")
        yield _claim(f"{name} turning the line around", name, "x\u202e")
        yield _claim(f"{name} of half a character pair", name, "\ud800")
    for name in ("iat", "nbf", "exp"):
        yield _claim(f"{name} as text", name, "1893456000")
        yield _claim(f"{name} with a fraction", name, 1893456000.5)
        yield _claim(f"{name} as a float", name, 1893456000.0)
        yield _claim(f"{name} negative", name, -1)
        yield _claim(f"{name} huge", name, 10**20)
        yield _claim(f"{name} just too large", name, 1 << 40)
    literals = ("1e400", "NaN", "Infinity", "1" * 5000, "0x10", "01")
    for literal in literals:
        yield _malformed(f"exp {literal[:9]}", lambda s, t=literal: _raw(s, "exp", t))  # type: ignore[misc]
    for name, value in (("jti", "x"), ("act", "ping"), ("exp", 1), ("aud", "x"), ("evt", "x")):
        yield _malformed(
            f"{name} twice",
            lambda s, name=name, value=value: _twice(s, name, value),  # type: ignore[misc]
        )
    texts = {
        "a list": "[]",
        "a text": '"x"',
        "null": "null",
        "no JSON": "{",
        "empty": " ",
        "nested deep": '{"x":' + "[" * 2000 + "]" * 2000 + "}",
        "two documents": "{}{}",
    }
    for name, text in texts.items():
        yield _malformed(f"claims {name}", lambda s, text=text: s.text(text))  # type: ignore[misc]
    yield _malformed("claims no UTF-8", lambda s: s.signer.token(b'{"jti":"\xff"}'))
    yield _malformed("claims in UTF-16", _as_utf_16)
    yield _malformed("claims behind a mark", _behind_mark)
    yield _malformed("a ping about an event", lambda s: s.approve(act="ping"))
    yield _malformed("a ping with a fingerprint", lambda s: s.approve(act="ping", evt=LEAVE_OUT))


def _as_utf_16(scene: Scene) -> bytes:
    return scene.signer.token(json.dumps(scene.claims()).encode("utf-16"))


def _behind_mark(scene: Scene) -> bytes:
    return scene.signer.token(b"\xef\xbb\xbf" + json.dumps(scene.claims()).encode())


def _malformed(name: str, make: Make) -> Forgery:
    return Forgery(name=name, reason="malformed", make=make)


def _claim(name: str, claim: str, value: Any) -> Forgery:
    return _malformed(name, lambda scene: scene.approve(**{claim: value}))


def _directions() -> Iterator[Forgery]:
    audiences: Mapping[str, Callable[[str], Any]] = {
        "no aud": lambda vm: LEAVE_OUT,
        "aud null": lambda vm: None,
        "aud a number": lambda vm: 1,
        "aud a list": lambda vm: ["urn:seb:vm:x", f"urn:seb:vm:{vm}"],
        "aud a list of one": lambda vm: [f"urn:seb:vm:{vm}"],
        "aud another VM": lambda vm: "urn:seb:vm:00000000-0000-0000-0000-000000000000",
        "aud in upper case": lambda vm: f"urn:seb:vm:{vm.upper()}",
        "aud the id alone": lambda vm: vm,
        "aud the beginning": lambda vm: f"urn:seb:vm:{vm}"[:-1],
        "aud and more": lambda vm: f"urn:seb:vm:{vm}0",
        "aud and a space": lambda vm: f"urn:seb:vm:{vm} ",
        "aud everybody": lambda vm: "urn:seb:vm:*",
    }
    for name, audience in audiences.items():
        yield Forgery(
            name=name,
            reason="wrong_audience",
            make=lambda s, audience=audience: s.approve(aud=audience(s.vm_id)),  # type: ignore[misc]
        )
    allowed: Mapping[str, Make] = {
        "iss another issuer's": lambda s: s.approve(iss=s.other.issuer),
        "iss with a slash": lambda s: s.approve(iss=f"{ISSUER}/"),
        "iss in another case": lambda s: s.approve(iss=ISSUER.upper()),
        "another issuer's key": lambda s: s.other.approve(s.soon, now=s.now, iss=ISSUER),
        "an unknown act": lambda s: s.approve(act="reboot"),
        "act in another case": lambda s: s.approve(act="Approve"),
        "an event of other VMs": lambda s: s.signer.approve(s.others, now=s.now),
    }
    for name, make in allowed.items():
        yield Forgery(name=name, reason="not_allowed", make=make)


def _times() -> Iterator[Forgery]:
    made: Mapping[str, tuple[str, Make]] = {
        "expired": ("expired", lambda s: s.approve(iat=s.now - 400, nbf=s.now - 400, exp=s.now)),
        "expired long ago": ("expired", lambda s: s.approve(iat=1, nbf=1, exp=2)),
        "from the future": ("not_yet_valid", lambda s: s.approve(iat=s.now + 60)),
        "for later": ("not_yet_valid", lambda s: s.approve(nbf=s.now + 60)),
        "never": ("not_yet_valid", lambda s: s.approve(nbf=s.now + 4, exp=s.now + 3)),
        "for ten years": (
            "lifetime_too_long",
            lambda s: s.approve(exp=s.now + 315_360_000),
        ),
        "for a second too long": ("lifetime_too_long", lambda s: s.approve(exp=s.now + 901)),
        "issued long ago": ("lifetime_too_long", lambda s: s.approve(iat=s.now - 601)),
        "valid since long": ("lifetime_too_long", lambda s: s.approve(nbf=s.now - 601)),
    }
    for name, (reason, make) in made.items():
        yield Forgery(name=name, reason=reason, make=make)


def _events() -> Iterator[Forgery]:
    made: Mapping[str, tuple[str, Make]] = {
        "an event never seen": ("unknown_event", lambda s: s.approve(evt="E-NEVER")),
        "SQL for an event": ("unknown_event", lambda s: s.approve(evt="' OR 1=1 --")),
        "an event that is over": (
            "unknown_event",
            lambda s: s.signer.approve(s.gone, now=s.now),
        ),
        "an event that has started": (
            "already_started",
            lambda s: s.signer.approve(s.begun, now=s.now),
        ),
        "the state before": ("event_changed", lambda s: s.signer.approve(s.before, now=s.now)),
        "another event's state": (
            "event_changed",
            lambda s: s.approve(evt=s.elsewhere["data"]["event"]["eventId"]),
        ),
        "a fingerprint in upper case": (
            "event_changed",
            lambda s: s.approve(evh=s.soon["data"]["fingerprint"].upper()),
        ),
        "a fingerprint cut short": (
            "event_changed",
            lambda s: s.approve(evh=s.soon["data"]["fingerprint"][:-1]),
        ),
        "a fingerprint without its kind": (
            "event_changed",
            lambda s: s.approve(evh=s.soon["data"]["fingerprint"].partition(":")[2]),
        ),
    }
    for name, (reason, make) in made.items():
        yield Forgery(name=name, reason=reason, make=make)


FORGED_CLAIMS: Sequence[Forgery] = (
    *_claims(),
    *_directions(),
    *_times(),
    *_events(),
)
