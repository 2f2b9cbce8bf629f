"""A control plane of its own, which shares no code with the bridge; it can also sign what no honest
one would: any bytes as header or as claims.
"""

import base64
import json
import time
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

LEAVE_OUT: Final = object()
"""In place of a value: the name is not there at all."""
ISSUER: Final = "https://control.example"


def b64(data: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unb64(text: str) -> bytes:
    """The bytes of base64url without padding."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class IssuerKey:
    """One key of one issuer."""

    def __init__(self, kid: str = "key-1", *, alg: str = "EdDSA", issuer: str = ISSUER) -> None:
        self.kid = kid
        self.alg = alg
        self.issuer = issuer
        self.key: Ed25519PrivateKey | EllipticCurvePrivateKey = (
            Ed25519PrivateKey.generate() if alg == "EdDSA" else generate_private_key(SECP256R1())
        )

    def jwk(self, **changes: Any) -> dict[str, Any]:
        """The public key as the trust file has it."""
        made: dict[str, Any] = {"kid": self.kid, "alg": self.alg, "iss": self.issuer, "use": "sig"}
        if isinstance(self.key, Ed25519PrivateKey):
            made |= {"kty": "OKP", "crv": "Ed25519", "x": b64(self.raw_public())}
        else:
            numbers = self.key.public_key().public_numbers()
            made |= {"kty": "EC", "crv": "P-256"}
            made |= {"x": b64(numbers.x.to_bytes(32)), "y": b64(numbers.y.to_bytes(32))}
        return _changed(made, changes)

    def raw_public(self) -> bytes:
        """The public key's bytes."""
        public = self.key.public_key()
        if isinstance(self.key, Ed25519PrivateKey):
            return public.public_bytes(Encoding.Raw, PublicFormat.Raw)
        return public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    def pem(self) -> bytes:
        """The public key as PEM."""
        return self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def sign(self, data: bytes) -> bytes:
        """The signature as JWS has it."""
        if isinstance(self.key, Ed25519PrivateKey):
            return self.key.sign(data)
        r, s = decode_dss_signature(self.der(data))
        return r.to_bytes(32) + s.to_bytes(32)

    def der(self, data: bytes) -> bytes:
        """The signature of an elliptic curve as everybody but JWS has it."""
        assert isinstance(self.key, EllipticCurvePrivateKey)
        return self.key.sign(data, ECDSA(SHA256()))

    def header(self, **changes: Any) -> dict[str, Any]:
        """The header of a command, with changes."""
        made = {"alg": self.alg, "kid": self.kid, "typ": "seb-command+jwt"}
        return _changed(made, changes)

    def token(
        self, claims: Mapping[str, Any] | bytes, header: Mapping[str, Any] | bytes | None = None
    ) -> bytes:
        """The compact form: claims and header as they are given, and a good signature."""
        header = self.header() if header is None else header
        parts = [b64(each if isinstance(each, bytes) else _json(each)) for each in (header, claims)]
        signed = ".".join(parts).encode()
        return signed + b"." + b64(self.sign(signed)).encode()

    def approve(self, record: Mapping[str, Any], **changes: Any) -> bytes:
        """An approval of the event in the state that a record tells."""
        return self.token(self.claims(record, **changes))

    def ping(self, vm_id: str, **changes: Any) -> bytes:
        """A command that only wants an answer."""
        made = self._common(vm_id) | {"act": "ping"}
        return self.token(_changed(made, changes))

    def claims(self, record: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
        """The claims of an approval, with changes; times are seconds since 1970."""
        data = record["data"]
        made = self._common(data["vm"]["vmId"], now=changes.pop("now", None))
        made |= {"act": "approve", "evt": data["event"]["eventId"], "evh": data["fingerprint"]}
        return _changed(made, changes)

    def _common(self, vm_id: str, *, now: int | None = None) -> dict[str, Any]:
        now = int(time.time()) if now is None else now
        return {
            "iss": self.issuer,
            "sub": "operator@control.example",
            "aud": f"urn:seb:vm:{vm_id}",
            "iat": now,
            "nbf": now,
            "exp": now + 300,
            "jti": str(uuid4()),
        }


def jwks(*signers: IssuerKey, extra: tuple[Mapping[str, Any], ...] = ()) -> str:
    """A trust file."""
    return json.dumps({"keys": [*(signer.jwk() for signer in signers), *extra]})


def split(token: bytes) -> tuple[str, str, bytes]:
    """Header and claims as they are spelt, and the signature's bytes."""
    header, claims, signature = token.decode().split(".")
    return header, claims, unb64(signature)


def joined(header: str, claims: str, signature: bytes) -> bytes:
    """The token of these parts."""
    return f"{header}.{claims}.{b64(signature)}".encode()


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _changed(made: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**made, **changes}.items() if value is not LEAVE_OUT}
