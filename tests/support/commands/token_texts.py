"""Attacks with the text of a token: any header, any claims, well signed or by a stranger."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from hypothesis import strategies as st
from support.commands.control_plane import ISSUER, LEAVE_OUT, Signer
from support.commands.forgery import Record, Scene
from support.commands.token_strategies import BROKEN, STRANGER, Attack, attack

_TEXT: Final = st.text(max_size=20) | st.sampled_from(
    ["", "\0", "x\n", "\u202e", "\ud800", "x" * 513, "x" * 512, "K", "\u017feb", "../../etc/passwd"]
)
JSON: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=4,
)
_SIGNERS: Final = st.sampled_from([*["signer"] * 6, "other", "curve", "curve", "stranger"])


def _signer(scene: Scene, name: str) -> Signer:
    found: Signer = STRANGER if name == "stranger" else getattr(scene, name)
    return found


# Headers.

_EMBEDDED: Final = "the stranger's own key"
_ALGS: Final = st.sampled_from(
    ["EdDSA", "ES256", "none", "None", "HS256", "RS256", "PS256", "ES256K", "Ed25519", "eddsa", ""]
)
_KIDS: Final = st.sampled_from(
    [
        *("key-1", "key-2", "key-3", "KEY-1", " key-1", "key-1 ", "key-1\0", "key-9", ""),
        *("../key-1", "/dev/null", "' OR '1'='1", "https://attacker.example/key", "key-1\n"),
    ]
)
_TYPES: Final = st.sampled_from(
    ["seb-command+jwt", "JWT", "SEB-COMMAND+JWT", "application/seb-command+jwt", ""]
)
_MORE_HEADERS: Final = st.dictionaries(
    st.sampled_from(
        ["jwk", "jku", "x5u", "x5c", "x5t", "crit", "b64", "zip", "cty", "iss", "exp", "ALG", ""]
    ),
    JSON
    | st.sampled_from([_EMBEDDED, "https://attacker.example/keys", ["b64"], ["exp"], [], False]),
    max_size=1,
)
_HEADERS: Final = st.tuples(
    st.fixed_dictionaries(
        {}, optional={"alg": _ALGS | JSON, "kid": _KIDS | JSON, "typ": _TYPES | JSON}
    ),
    st.sampled_from([(), (), (), ("alg",), ("kid",), ("typ",)]),
    _MORE_HEADERS,
)


def _headed(
    scene: Scene,
    signer: str,
    header: tuple[Mapping[str, Any], tuple[str, ...], Mapping[str, Any]],
    twice: tuple[str, Any] | None,
) -> bytes:
    """A good command under another header, signed as it stands."""
    key = _signer(scene, signer)
    changed, gone, more = header
    more = {n: key.jwk() if value == _EMBEDDED else value for n, value in more.items()}
    made = {**key.header(), **changed, **more}
    text = _json({name: value for name, value in made.items() if name not in gone}, twice)
    return key.token(scene.claims(iss=key.issuer), text)


# Claims.

_NOW: Final = "now"
_OFFSETS: Final = st.sampled_from(
    [0, 1, -1, 4, 5, 6, 7, 299, 300, 301, 599, 600, 894, 895, 899, 900, 901, 905, -300, -600, -900]
) | st.integers(-1000, 1000)
_TIMES: Final = st.tuples(
    st.just(_NOW), _OFFSETS | st.sampled_from([0.0, 300.0, 0.5])
) | st.sampled_from(
    [0, -1, 2**31, 2**40 - 1, 2**40, 10**20, 1e9, 1893456000.5, "1893456000", True, None, LEAVE_OUT]
)
_AUDIENCES: Final = st.sampled_from(
    [
        *("{vm}", "urn:seb:vm:{VM}", "urn:seb:vm:{vm} ", " urn:seb:vm:{vm}", "urn:seb:vm:{vm}0"),
        *(
            "urn:seb:vm:",
            "urn:seb:vm:*",
            "URN:SEB:VM:{vm}",
            "urn:seb:vm:{vm}\0",
            "urn:seb:vm%3A{vm}",
        ),
        *(["urn:seb:vm:{vm}"], ["urn:seb:vm:{vm}", "x"], [], {"urn:seb:vm:{vm}": 1}),
        *("urn:seb:vm:00000000-0000-4000-8000-000000000000", "urn:seb:vm:{vm}", LEAVE_OUT, None),
    ]
)
_WORDS: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "iss": st.sampled_from(
        [ISSUER, f"{ISSUER}/", ISSUER.upper(), "https://other.example", "key-1"]
    ),
    "sub": st.sampled_from(["operator", "rule:mine", "local:root", "x\nactor=root", "Ünï"]),
    "jti": st.sampled_from(["used", "USED", "used ", "fresh"]),
    "act": st.sampled_from(["approve", "ping", "Approve", "approve ", "reject", "*"]),
    "evt": st.sampled_from(["E-SOON", "e-soon", "E-SOON ", "E-ELSE", "E-GONE", "*", "E-OTHERS"]),
    "evh": st.sampled_from(["sha256:", "*", "sha256:" + "0" * 64]),
    "rsn": st.sampled_from(["drained", "", None, "x" * 513]),
}
_CLAIM: Final = st.one_of(
    st.sampled_from(sorted(_WORDS)).flatmap(lambda name: st.tuples(st.just(name), _WORDS[name])),
    st.sampled_from(sorted(_WORDS)).flatmap(
        lambda name: st.tuples(st.just(name), JSON | st.just(LEAVE_OUT))
    ),
    st.tuples(st.sampled_from(["iat", "nbf", "exp"]), _TIMES),
    st.tuples(st.sampled_from(["iat", "nbf", "exp", "aud"]), JSON),
    st.tuples(st.just("aud"), _AUDIENCES),
    st.tuples(st.sampled_from(["crit", "nonce", "Exp", ""]), JSON),
)
_WORD: Final = st.sampled_from(sorted(_WORDS)).flatmap(
    lambda name: st.tuples(st.just(name), _WORDS[name])
)
_CLAIMS: Final = st.lists(_CLAIM, min_size=1, max_size=3)
_STATES: Final = st.sampled_from(
    ["soon", "soon", "soon", "before", "elsewhere", "begun", "gone", "others"]
)


def _filled(scene: Scene, value: Any) -> Any:
    """A claim for this scene: `{vm}` stands for the VM, and a time for one near now."""
    match value:
        case ("now", (int() | float()) as offset):
            return scene.now + offset
        case str():
            return value.replace("{vm}", scene.vm_id).replace("{VM}", scene.vm_id.upper())
        case list():
            return [_filled(scene, each) for each in value]
        case _:
            return value


def _claimed(
    scene: Scene,
    signer: str,
    state: str,
    changes: list[tuple[str, Any]],
    twice: tuple[str, Any] | None,
) -> bytes:
    """A command with other claims, signed as it stands."""
    key = _signer(scene, signer)
    record: Record = getattr(scene, state)
    claims = key.claims(record, now=scene.now)
    for name, value in changes:
        claims[name] = _filled(scene, value)
    kept = {name: value for name, value in claims.items() if value is not LEAVE_OUT}
    return key.token(_json(kept, twice))


def _timed(scene: Scene, signer: str, iat: int, nbf: int, exp: int) -> bytes:
    """A command whose times are near their borders."""
    now = scene.now
    key = _signer(scene, signer)
    return key.approve(scene.soon, now=now, iat=now + iat, nbf=now + nbf, exp=now + exp)


def _lasting(scene: Scene, signer: str, begins: int, ends: int) -> bytes:
    """A command that is good from one second to another, and about something that can be done."""
    return _timed(scene, signer, begins, begins, ends)


def _json(value: Mapping[str, Any], twice: tuple[str, Any] | None) -> bytes:
    """The object as text, with one of its names a second time in front."""
    text = json.dumps(value)
    if twice is not None:
        more = f"{json.dumps(twice[0])}: {json.dumps(twice[1])}"
        text = "{" + more + (", " if value else "") + text[1:]
    return text.encode()


def _twice(*names: str) -> st.SearchStrategy[tuple[str, Any] | None]:
    return st.none() | st.none() | st.none() | st.tuples(st.sampled_from(names), JSON)


SIGNED: Final[tuple[st.SearchStrategy[Attack], ...]] = (
    attack("header", _headed, _SIGNERS, _HEADERS, _twice("alg", "kid", "typ", "x")),
    attack(
        "claims",
        _claimed,
        _SIGNERS,
        _STATES,
        _CLAIMS,
        _twice("iss", "aud", "exp", "act", "evt", "x"),
    ),
    attack("state", _claimed, _SIGNERS, _STATES, st.lists(_WORD, max_size=1), st.none()),
    attack("times", _timed, _SIGNERS, _OFFSETS, _OFFSETS, _OFFSETS),
    attack(
        "lasting",
        _lasting,
        _SIGNERS,
        st.sampled_from([-900, -899, -1, 0, 4, 5, 6, 7]),
        st.sampled_from([-1, 0, 1, 2, 5, 6, 7, 899, 900, 901, 905, 906]),
    ),
    attack(
        "signed noise",
        lambda scene, signer, noise: _signer(scene, signer).token(noise),
        _SIGNERS,
        st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()),
    ),
)
"""Attacks with the right key, or with a stranger's under its name."""

ATTACKS: Final = st.builds(
    lambda made, retained: replace(made, retained=retained),
    st.one_of(*BROKEN, *SIGNED),
    st.sampled_from([False] * 31 + [True]),
)
