"""Forgeries that fail before their claims are read: by size, shape, header, key or signature."""

import base64
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives import hmac
from cryptography.hazmat.primitives.hashes import SHA256
from support.commands.control_plane import LEAVE_OUT, IssuerKey, b64, joined, split
from support.commands.forgery import ForgerTools, Forgery, Make, forged

CURVE_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
EDWARDS_ORDER = 2**252 + 27742317777372353535851937790883648493


def _hs256(scene: ForgerTools, secret: bytes) -> bytes:
    header = scene.signer.header(alg="HS256")
    parts = [b64(json.dumps(each).encode()) for each in (header, scene.claims())]
    signed = ".".join(parts).encode()
    mac = hmac.HMAC(secret, SHA256())
    mac.update(signed)
    return signed + b"." + b64(mac.finalize()).encode()


def _cut(scene: ForgerTools, edit: Callable[[bytes], bytes]) -> bytes:
    """A good approval with another signature."""
    header, claims, signature = split(scene.approve())
    return joined(header, claims, edit(signature))


def _curved(scene: ForgerTools, edit: Callable[[int, int], bytes]) -> bytes:
    """A good ES256 approval whose two numbers are written otherwise."""
    token = scene.curve.approve(scene.soon, now=scene.now)
    header, claims, signature = split(token)
    r, s = int.from_bytes(signature[:32]), int.from_bytes(signature[32:])
    return joined(header, claims, edit(r, s))


def _der(scene: ForgerTools) -> bytes:
    header, claims, _ = split(scene.curve.approve(scene.soon, now=scene.now))
    return joined(header, claims, scene.curve.der(f"{header}.{claims}".encode()))


def _beyond_order(signature: bytes) -> bytes:
    """The same Ed25519 signature with its second number one order further."""
    number = int.from_bytes(signature[32:], "little") + EDWARDS_ORDER
    return signature[:32] + number.to_bytes(32, "little")


def _respelt(token: bytes) -> bytes:
    """The same signature's bytes in another spelling: the last sign has bits that say nothing."""
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    place = alphabet.index(token[-1:])
    return token[:-1] + alphabet[place ^ 1 : (place ^ 1) + 1]


def _flattened(token: bytes) -> bytes:
    """JWS's other form, JSON."""
    header, claims, signature = token.decode().split(".")
    made = {"protected": header, "payload": claims, "signature": signature}
    return json.dumps(made).encode()


def _header_twice(scene: ForgerTools) -> bytes:
    good = json.dumps(scene.signer.header())
    return scene.signer.token(scene.claims(), ('{"alg": "none", ' + good[1:]).encode())


def _own_key(scene: ForgerTools) -> bytes:
    stranger = IssuerKey(scene.signer.kid)
    return stranger.token(scene.claims(), stranger.header(jwk=stranger.jwk()))


def _other_claims(scene: ForgerTools) -> bytes:
    header, _, signature = split(scene.signer.approve(scene.elsewhere, now=scene.now))
    return joined(header, b64(json.dumps(scene.claims()).encode()), signature)


def _edited(edit: Callable[[bytes], bytes]) -> Make:
    return lambda scene: edit(scene.approve())


def _headed(change: Mapping[str, Any]) -> Make:
    return lambda scene: scene.headed(**change)


def _header_text(text: bytes) -> Make:
    return lambda scene: scene.signer.token(scene.claims(), text)


_EDITS: Mapping[str, Callable[[bytes], bytes]] = {
    "nothing": lambda token: b"",
    "two parts": lambda token: token.rpartition(b".")[0],
    "four parts": lambda token: token + b".AAAA",
    "five parts, as JWE": lambda token: token + b".AAAA.AAAA",
    "an empty header": lambda token: b"." + token.partition(b".")[2],
    "empty claims": lambda token: b"..".join(token.split(b".")[::2]),
    "an empty signature": lambda token: token.rpartition(b".")[0] + b".",
    "dots only": lambda token: b"..",
    "a space in front": lambda token: b" " + token,
    "a newline behind": lambda token: token + b"\n",
    "a newline within the signature": lambda token: token[:-9] + b"\n" + token[-9:],
    "padding": lambda token: token + b"==",
    "another spelling of the signature": _respelt,
    "the other alphabet": lambda token: token.rpartition(b".")[0] + b"." + b"+/" * 43,
    "a NUL": lambda token: token.replace(b".", b".\0", 1),
    "quotes around": lambda token: b'"' + token + b'"',
    "Bearer in front": lambda token: b"Bearer " + token,
    "JSON serialization": _flattened,
    "base64 of the whole": base64.b64encode,
    "packed": lambda token: gzip.compress(token, mtime=0),
    "UTF-16": lambda token: token.decode().encode("utf-16"),
    "no UTF-8": lambda token: b"\xff\xfe" + token,
    "one sign too many": lambda token: token + b"AAA",
}
_HEADERS: Mapping[str, Mapping[str, Any]] = {
    **{f"alg {alg}": {"alg": alg} for alg in ("none", "None", "NONE", "nOnE", "", "RS256")},
    "alg in lower case": {"alg": "eddsa"},
    "alg a list": {"alg": ["EdDSA"]},
    "alg a number": {"alg": 0},
    "alg null": {"alg": None},
    "no alg": {"alg": LEAVE_OUT},
    "no kid": {"kid": LEAVE_OUT},
    "kid a number": {"kid": 1},
    "kid a list": {"kid": ["key-1"]},
    "no typ": {"typ": LEAVE_OUT},
    "typ JWT": {"typ": "JWT"},
    "typ in upper case": {"typ": "SEB-COMMAND+JWT"},
    "typ with its prefix": {"typ": "application/seb-command+jwt"},
    "unknown crit": {"crit": ["x"], "x": 1},
    "crit empty": {"crit": []},
    "b64 false": {"b64": False, "crit": ["b64"]},
    "b64 true": {"b64": True},
    "jku": {"jku": "https://attacker.example/keys"},
    "x5u": {"x5u": "https://attacker.example/chain"},
    "x5c": {"x5c": ["MIIB"]},
    "x5t": {"x5t": "AAAA"},
    "zip": {"zip": "DEF"},
    "cty": {"cty": "JWT"},
}
_HEADER_TEXTS: Mapping[str, bytes] = {
    "header a list": b'["alg"]',
    "header no JSON": b"{alg: none}",
    "header nested deep": b'{"alg":' + b"[" * 2500 + b"]" * 2500 + b"}",
    "header no UTF-8": b'{"alg":"\xff"}',
}
_KIDS = {
    "an unknown kid": "key-9",
    "a kid in another case": "KEY-1",
    "a path for a kid": "../../../../dev/null",
    "SQL for a kid": "x' UNION SELECT 'AAAA",
    "a kid with a NUL": "key-1\0",
    "an empty kid": "",
    "a kid of half a character pair": "\ud800",
    "the kid of a key of another kind": "key-3",
}
_MADE: Mapping[str, Mapping[str, Make]] = {
    "too_large": {
        "one byte too many": lambda s: s.approve().ljust(8193, b"A"),
        "1 MB": lambda s: s.approve().ljust(1 << 20, b"A"),
        "nested 10,000 deep": lambda s: s.text('{"x":' + "[" * 10_000 + "]" * 10_000 + "}"),
    },
    "malformed": {
        **{name: _edited(edit) for name, edit in _EDITS.items()},
        **{name: _headed(change) for name, change in _HEADERS.items()},
        **{name: _header_text(text) for name, text in _HEADER_TEXTS.items()},
        "header with alg twice": _header_twice,
        "its own key in jwk": _own_key,
        "alg none, no signature": lambda s: s.headed(alg="none").rpartition(b".")[0] + b".",
        "HS256 with the key's bytes": lambda s: _hs256(s, s.signer.raw_public()),
        "HS256 with the key as PEM": lambda s: _hs256(s, s.signer.pem()),
        "HS256 with the key as JWK": lambda s: _hs256(s, json.dumps(s.signer.jwk()).encode()),
        "HS256 with an empty secret": lambda s: _hs256(s, b""),
    },
    "unknown_key": {
        **{name: _headed({"kid": kid}) for name, kid in _KIDS.items()},
        "ES256 said of an Ed25519 key": _headed({"alg": "ES256"}),
    },
    "bad_signature": {
        "another key under a known kid": lambda s: IssuerKey(s.signer.kid).approve(
            s.soon, now=s.now
        ),
        "the kid of another issuer's key": lambda s: s.headed(kid=s.other.kid),
        "a signature cut short": lambda s: _cut(s, lambda sig: sig[:-1]),
        "a signature too long": lambda s: _cut(s, lambda sig: sig + b"\0"),
        "a signature of zeros": lambda s: _cut(s, lambda sig: bytes(64)),
        "a signature turned around": lambda s: _cut(s, lambda sig: sig[::-1]),
        "Ed25519 beyond its order": lambda s: _cut(s, _beyond_order),
        "ES256 as DER": _der,
        "ES256 of zeros": lambda s: _curved(s, lambda r, t: bytes(64)),
        "ES256 with its numbers changed over": lambda s: _curved(
            s, lambda r, t: t.to_bytes(32) + r.to_bytes(32)
        ),
        "ES256 beyond its order": lambda s: _curved(
            s, lambda r, t: r.to_bytes(32) + (t + CURVE_ORDER).to_bytes(33)
        ),
        "other claims under a good signature": _other_claims,
        "the signature of another token": lambda s: _cut(
            s, lambda sig: split(s.approve(jti="another"))[2]
        ),
    },
}

FORGED_TOKENS: Sequence[Forgery] = (
    *(each for reason, made in _MADE.items() for each in forged(reason, made, answered=False)),
    Forgery(
        name="a good one, retained",
        reason="retained",
        make=lambda s: s.approve(),
        answered=False,
        retained=True,
    ),
)
