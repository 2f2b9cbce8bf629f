"""Attacks with tokens, made up by hypothesis: bytes changed, parts exchanged, headers and claims of
any kind, keys confused, times at their borders.

An attack is a recipe: `make(scene)` is the token for the keys and events that a scene has. Some of
what comes out is good by chance; `token_judge` says which.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography.hazmat.primitives import hashes, hmac
from hypothesis import strategies as st
from support.commands.control_plane import Signer, b64, joined, split
from support.commands.forged_tokens import CURVE_ORDER, EDWARDS_ORDER
from support.commands.forgery import Scene

STRANGER: Final = Signer("key-1")
"""A key that nobody trusts, under the name of one that is trusted."""


@dataclass(frozen=True)
class Attack:
    """One token, as what it is made of says."""

    kind: str
    recipe: tuple[Any, ...]
    build: Callable[..., bytes]
    retained: bool = False

    def make(self, scene: Scene) -> bytes:
        """The token."""
        return self.build(scene, *self.recipe)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.recipe!r}{' retained' * self.retained}>"


def attack(kind: str, build: Callable[..., bytes], *parts: st.SearchStrategy[Any]) -> Any:
    """Attacks of one kind, whose recipe is drawn part by part."""
    return st.builds(
        lambda recipe: Attack(kind=kind, recipe=recipe, build=build), st.tuples(*parts)
    )


# Good tokens to begin with.

_Make = Callable[[Scene], bytes]
_POOL: Final[Mapping[str, _Make]] = {
    "good": lambda s: s.approve(jti="one"),
    "good too": lambda s: s.approve(jti="two", rsn="drained"),
    "of a curve": lambda s: s.curve.approve(s.soon, now=s.now, jti="three"),
    "of another issuer": lambda s: s.other.approve(s.soon, now=s.now, jti="four"),
    "of another event": lambda s: s.signer.approve(s.elsewhere, now=s.now, jti="five"),
    "a ping": lambda s: s.signer.ping(s.vm_id, iat=s.now, nbf=s.now, exp=s.now + 9, jti="six"),
    "for another VM": lambda s: s.approve(aud="urn:seb:vm:other", jti="seven"),
    "expired": lambda s: s.approve(iat=s.now - 400, nbf=s.now - 400, exp=s.now - 100),
    "of a stranger": lambda s: STRANGER.approve(s.soon, now=s.now, jti="one"),
}
_ANY_TOKEN: Final = st.sampled_from(sorted(_POOL))
_GOOD: Final = st.sampled_from(["good", "good too", "of a curve", "of another issuer"])

# Bytes.

_Edit = tuple[str, int, int, bytes]
_EDITS: Final = st.lists(
    st.tuples(
        st.sampled_from(
            ["flip", "flip", "set", "insert", "delete", "double", "turn", "case", "cut", "swap"]
        ),
        st.integers(0, 1500),
        st.integers(0, 255),
        st.binary(min_size=1, max_size=4) | st.sampled_from([b".", b"=", b"-", b"_", b"\n", b" "]),
    ),
    min_size=1,
    max_size=3,
)


def _edited(scene: Scene, name: str, edits: list[_Edit]) -> bytes:
    token: bytes = _POOL[name](scene)
    for what, place, number, data in edits:
        at = place % max(1, len(token))
        end = at + 1 + number % 16
        before, part, after = token[:at], token[at:end], token[end:]
        results: dict[str, bytes] = {
            "flip": before + bytes([token[at] ^ (1 << number % 8)]) + token[at + 1 :]
            if token
            else b"",
            "set": before + bytes([number]) + token[at + 1 :],
            "insert": before + data + token[at:],
            "delete": before + after,
            "double": before + part + part + after,
            "turn": before + part[::-1] + after,
            "case": before + part.swapcase() + after,
            "cut": before,
            "swap": after + part + before,
        }
        token = results[what]
    return token


# Parts of different tokens.


def _spliced(scene: Scene, names: tuple[str, str, str], tail: bytes) -> bytes:
    parts = [_POOL[name](scene).split(b".") for name in names]
    return b".".join([parts[0][0], parts[1][1], parts[2][2]]) + tail


# Signatures and keys.


def _hmac(secret: bytes, alg: str, signed: bytes) -> bytes:
    kind = {"HS384": hashes.SHA384, "HS512": hashes.SHA512}.get(alg, hashes.SHA256)
    made = hmac.HMAC(secret, kind())
    made.update(signed)
    mac: bytes = made.finalize()
    return mac


def _public(signer: Signer, form: str) -> bytes:
    """What everybody knows of a key, as a secret of HMAC."""
    return {
        "raw": signer.raw_public(),
        "pem": signer.pem(),
        "pem without its end": signer.pem().strip(),
        "jwk": json.dumps(signer.jwk()).encode(),
        "x": str(signer.jwk()["x"]).encode(),
        "kid": signer.kid.encode(),
        "nothing": b"",
    }[form]


_FORMS: Final = st.sampled_from(["raw", "pem", "pem without its end", "jwk", "x", "kid", "nothing"])


def _confused(scene: Scene, alg: str, form: str, which: str, header: Mapping[str, Any]) -> bytes:
    """A token that is signed with what is public, in the name of another algorithm."""
    signer: Signer = getattr(scene, which)
    head = {**signer.header(alg=alg), **header}
    parts = [b64(json.dumps(each).encode()) for each in (head, scene.claims(iss=signer.issuer))]
    signed = ".".join(parts)
    return f"{signed}.{b64(_hmac(_public(signer, form), alg, signed.encode()))}".encode()


_SIGNATURES: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "none": lambda made: b"",
    "zeros": lambda made: bytes(64),
    "ones": lambda made: b"\xff" * 64,
    "its halves exchanged": lambda made: made[32:] + made[:32],
    "as if of another length": lambda made: made + b"\0",
    "without its first byte": lambda made: made[1:],
    "twice": lambda made: made + made,
    "beyond its order": lambda made: (
        made[:32]
        + ((int.from_bytes(made[32:], "little") + EDWARDS_ORDER) % 2**256).to_bytes(32, "little")
    ),
    # An ES256 signature has a twin that is good as well: the jti is what is used up.
    "its twin": lambda made: made[:32] + ((-int.from_bytes(made[32:])) % CURVE_ORDER).to_bytes(32),
    "its other numbers": lambda made: (
        ((int.from_bytes(made[:32]) + 1) % CURVE_ORDER).to_bytes(32) + made[32:]
    ),
}


def _resigned(scene: Scene, name: str, what: str) -> bytes:
    header, claims, signature = split(_POOL[name](scene))
    return joined(header, claims, _SIGNATURES[what](signature))


def _respelt(scene: Scene, name: str, bits: int) -> bytes:
    """The same bytes in other signs: the last sign of a signature has bits that say nothing."""
    signs = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    token = _POOL[name](scene).decode()
    return (token[:-1] + signs[signs.index(token[-1]) ^ bits]).encode()


BROKEN: Final[tuple[st.SearchStrategy[Attack], ...]] = (
    attack("edited", _edited, _ANY_TOKEN, _EDITS),
    attack("edited", _edited, _GOOD, _EDITS.map(lambda edits: edits[:1])),
    attack(
        "spliced",
        _spliced,
        st.tuples(_ANY_TOKEN, _ANY_TOKEN, _ANY_TOKEN),
        st.sampled_from([b"", b"", b"", b".", b".AAAA", b"\n"]),
    ),
    attack(
        "key confused",
        _confused,
        st.sampled_from(["HS256", "HS384", "HS512", "none", "EdDSA", "ES256", "RS256"]),
        _FORMS,
        st.sampled_from(["signer", "curve", "other"]),
        st.sampled_from([{}, {"kid": "key-2"}, {"kid": "key-3"}, {"typ": "JWT"}]),
    ),
    attack("resigned", _resigned, _ANY_TOKEN, st.sampled_from(sorted(_SIGNATURES))),
    attack("respelt", _respelt, _GOOD, st.integers(1, 15)),
    attack("noise", lambda _, noise: noise, st.binary(max_size=200)),
    attack(
        "noise in base64",
        lambda _, a, b, c: ".".join(map(b64, (a, b, c))).encode(),
        *[st.binary(max_size=60)] * 3,
    ),
)
"""Attacks of somebody without a key."""
