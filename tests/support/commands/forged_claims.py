"""Every forgery. Those made here have a good signature: they are of the wrong type, misdirected,
out of their time, or about an event in another state.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from support.commands.control_plane import ISSUER, LEAVE_OUT
from support.commands.forged_tokens import FORGED_TOKENS
from support.commands.forgery import Forgery, Make, claiming, forged


def _claims() -> Iterator[tuple[str, str, Any]]:
    """Name of the forgery, claim, and what it is instead."""
    for name in ("iss", "sub", "iat", "nbf", "exp", "jti", "act", "evt", "evh"):
        yield f"no {name}", name, LEAVE_OUT
        for what, value in (("null", None), ("a list", ["x"]), ("an object", {}), ("true", True)):
            yield f"{name} {what}", name, value
    for name in ("iss", "sub", "jti", "act", "evt", "evh", "rsn"):
        yield f"{name} a number", name, 1
        yield f"{name} empty", name, ""
        yield f"{name} too long", name, "x" * 513
        yield f"{name} with a newline", name, "x\nactor=root"
        yield f"{name} with a NUL", name, "x\0"
        yield f"{name} turning the line around", name, "x\u202e"
        yield f"{name} of half a character pair", name, "\ud800"
    for name in ("iat", "nbf", "exp"):
        yield f"{name} as text", name, "1893456000"
        yield f"{name} with a fraction", name, 1893456000.5
        yield f"{name} as a float", name, 1893456000.0
        yield f"{name} negative", name, -1
        yield f"{name} huge", name, 10**20
        yield f"{name} just too large", name, 1 << 40


def _twice(name: str, value: Any) -> Make:
    """Claims with one key twice: the good one last, as lenient parsers take it."""
    return lambda s: s.text(f'{{"{name}": {json.dumps(value)}, ' + json.dumps(s.claims())[1:])


def _literal(text: str) -> Make:
    """An `exp` that `json` would not write."""
    return lambda s: s.text(json.dumps(s.claims(exp="@")).replace('"@"', text))


def _text(claims: str) -> Make:
    return lambda s: s.text(claims)


def _audience(of: Callable[[str], Any]) -> Make:
    return lambda s: s.approve(aud=of(s.vm_id))


_LITERALS = ("1e400", "NaN", "Infinity", "1" * 5000, "0x10", "01")
_TWICE = {"jti": "x", "act": "ping", "exp": 1, "aud": "x", "evt": "x"}
_TEXTS = {
    "a list": "[]",
    "a text": '"x"',
    "null": "null",
    "no JSON": "{",
    "empty": " ",
    "nested deep": '{"x":' + "[" * 2000 + "]" * 2000 + "}",
    "two documents": "{}{}",
}
_MALFORMED: Mapping[str, Make] = {
    **{name: claiming({claim: value}) for name, claim, value in _claims()},
    **{f"exp {literal[:9]}": _literal(literal) for literal in _LITERALS},
    **{f"{name} twice": _twice(name, value) for name, value in _TWICE.items()},
    **{f"claims {name}": _text(text) for name, text in _TEXTS.items()},
    "claims no UTF-8": lambda s: s.signer.token(b'{"jti":"\xff"}'),
    "claims in UTF-16": lambda s: s.signer.token(json.dumps(s.claims()).encode("utf-16")),
    "claims behind a mark": lambda s: s.text("\ufeff" + json.dumps(s.claims())),
    "a ping about an event": claiming({"act": "ping"}),
    "a ping with a fingerprint": claiming({"act": "ping", "evt": LEAVE_OUT}),
}
_AUDIENCES: Mapping[str, Callable[[str], Any]] = {
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
_OTHERS: Mapping[str, Mapping[str, Make]] = {
    "wrong_audience": {name: _audience(of) for name, of in _AUDIENCES.items()},
    "not_allowed": {
        "iss another issuer's": lambda s: s.approve(iss=s.other.issuer),
        "iss with a slash": claiming({"iss": f"{ISSUER}/"}),
        "iss in another case": claiming({"iss": ISSUER.upper()}),
        "another issuer's key": lambda s: s.other.approve(s.soon, now=s.now, iss=ISSUER),
        "an unknown act": claiming({"act": "reboot"}),
        "act in another case": claiming({"act": "Approve"}),
        "an event of other VMs": lambda s: s.about(s.others),
    },
    "expired": {
        "expired": lambda s: s.approve(iat=s.now - 400, nbf=s.now - 400, exp=s.now),
        "expired long ago": claiming({"iat": 1, "nbf": 1, "exp": 2}),
    },
    "not_yet_valid": {
        "from the future": lambda s: s.approve(iat=s.now + 60),
        "for later": lambda s: s.approve(nbf=s.now + 60),
        "never": lambda s: s.approve(nbf=s.now + 4, exp=s.now + 3),
    },
    "lifetime_too_long": {
        "for ten years": lambda s: s.approve(exp=s.now + 315_360_000),
        "for a second too long": lambda s: s.approve(exp=s.now + 901),
        "issued long ago": lambda s: s.approve(iat=s.now - 601),
        "valid since long": lambda s: s.approve(nbf=s.now - 601),
    },
    "unknown_event": {
        "an event never seen": claiming({"evt": "E-NEVER"}),
        "SQL for an event": claiming({"evt": "' OR 1=1 --"}),
        "an event that is over": lambda s: s.about(s.gone),
    },
    "already_started": {"an event that has started": lambda s: s.about(s.begun)},
    "event_changed": {
        "the state before": lambda s: s.about(s.before),
        "another event's state": lambda s: s.approve(evt=s.elsewhere["data"]["event"]["eventId"]),
        "a fingerprint in upper case": lambda s: s.approve(
            evh=s.soon["data"]["fingerprint"].upper()
        ),
        "a fingerprint cut short": lambda s: s.approve(evh=s.soon["data"]["fingerprint"][:-1]),
        "a fingerprint without its kind": lambda s: s.approve(
            evh=s.soon["data"]["fingerprint"].partition(":")[2]
        ),
    },
}

FORGERIES: Sequence[Forgery] = (
    *FORGED_TOKENS,
    *forged("malformed", _MALFORMED),
    *(each for reason, made in _OTHERS.items() for each in forged(reason, made)),
)
