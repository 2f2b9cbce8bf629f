"""Keys that sign commands, and tokens: as the bridge's own verifier and PyJWT read them."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import pytest

from bridge.cli.key_files import read_private
from wire import keys
from wire.command import Command, sign
from wire.keys import KeyFileError, SigningKey

ISSUER = "https://control.example"
VM = "0b2f5e1c-7f3c-4f6c-9d4e-2d0c4a1f9a11"
NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
ALGORITHMS = ["EdDSA", "ES256"]


def make(alg: str = "EdDSA", kid: str | None = None) -> dict[str, str]:
    """Return a new private key."""
    return keys.generate(issuer=ISSUER, kid=kid, alg=alg)


def written(tmp_path: Path, jwk: Any) -> Path:
    """Return the path of a key file with this content."""
    path = tmp_path / "key.json"
    path.write_text(json.dumps(jwk))
    return path


@pytest.mark.parametrize("alg", ALGORITHMS)
def test_every_claim_of_an_approval(alg: str, tmp_path: Path) -> None:
    """Header and claims are what the design lists, and no others; the public half verifies them."""
    jwk = make(alg, kid="key-1")
    key = read_private(written(tmp_path, jwk))
    command = Command(
        subject="anna",
        act="approve",
        event_id="E-1",
        fingerprint="sha256:00",
        person_reason="window",
        jti="j-1",
    )
    token = sign(command, key, vm_id=VM, now=NOW, lifetime=120).decode()
    assert jwt.get_unverified_header(token) == {
        "alg": alg,
        "kid": "key-1",
        "typ": "seb-command+jwt",
    }
    seconds = int(NOW.timestamp())
    times = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False}
    public = jwt.PyJWK(keys.public(jwk))
    assert jwt.decode(token, public, algorithms=[alg], options=times) == {
        "iss": ISSUER,
        "sub": "anna",
        "aud": f"urn:seb:vm:{VM}",
        "iat": seconds,
        "nbf": seconds,
        "exp": seconds + 120,
        "jti": "j-1",
        "act": "approve",
        "evt": "E-1",
        "evh": "sha256:00",
        "rsn": "window",
    }


def test_each_command_has_its_own_id() -> None:
    """Two commands have different ids, because the second one would otherwise be a replay."""
    assert Command(subject="a", act="ping").jti != Command(subject="a", act="ping").jti


@pytest.mark.parametrize("lifetime", [0, -1, 901])
def test_a_lifetime_that_no_bridge_allows(lifetime: int, tmp_path: Path) -> None:
    """A lifetime that no bridge accepts is refused before the command is signed."""
    key = read_private(written(tmp_path, make()))
    with pytest.raises(ValueError, match="1 to 900 seconds"):
        sign(Command(subject="a", act="ping"), key, vm_id=VM, now=NOW, lifetime=lifetime)


def test_the_key_id_is_the_thumbprint_unless_given() -> None:
    """Without a given id, both halves of a key have its thumbprint as their id."""
    jwk = make()
    assert jwk["kid"] == keys.thumbprint(keys.public(jwk)) == keys.thumbprint(jwk)
    assert make(kid="mine")["kid"] == "mine"


def test_the_thumbprint_of_the_specification() -> None:
    """The thumbprint of the key in RFC 8037, appendix A.3, is the one printed there."""
    jwk = {
        "kty": "OKP",
        "crv": "Ed25519",
        "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
    }
    assert keys.thumbprint(jwk) == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


@pytest.mark.parametrize(("issuer", "kid"), [("", None), ("a\nb", None), ("x" * 201, None)])
def test_a_name_that_no_token_can_hold(issuer: str, kid: str | None) -> None:
    """An issuer that no token can hold is refused before a key is made."""
    with pytest.raises(ValueError, match="issuer must be one line"):
        keys.generate(issuer=issuer, kid=kid, alg="EdDSA")


def test_no_key_is_in_a_repr(tmp_path: Path) -> None:
    """The `repr` of a key shows its names and no key material."""
    jwk = make(kid="key-1")
    key = read_private(written(tmp_path, jwk))
    assert repr(key) == repr(SigningKey(kid="key-1", alg="EdDSA", issuer=ISSUER, key=None))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"d": None}, "holds no private key"),
        ({"keys": []}, "holds no private key"),
        ({"iss": None}, "needs kid, alg and iss"),
        ({"kid": 7}, "needs kid, alg and iss"),
        ({"alg": "HS256"}, "is neither EdDSA"),
        ({"crv": "P-256"}, "is neither EdDSA"),
        ({"d": "AAAA"}, "holds no valid key"),
    ],
)
def test_a_key_file_without_a_usable_key(
    tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    """The error about an unusable key names the file and the remedy, and shows nothing of the
    key.
    """
    jwk = make()
    changed = {name: value for name, value in {**jwk, **change}.items() if value is not None}
    path = written(tmp_path, changed)
    with pytest.raises(KeyFileError, match=expected) as caught:
        read_private(path)
    assert str(path) in str(caught.value)
    assert jwk["d"] not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"no JSON", b"\xff", b'{"d":1,"d":2}'])
def test_a_file_that_holds_no_key_at_all(tmp_path: Path, content: bytes) -> None:
    """The error about a file without any key names the file and the remedy."""
    path = tmp_path / "key.json"
    path.write_bytes(content)
    with pytest.raises(KeyFileError, match="holds no JSON object"):
        read_private(path)


def test_a_missing_key_file(tmp_path: Path) -> None:
    """The error about a missing file has the system's reason."""
    with pytest.raises(KeyFileError, match="cannot be read: No such file"):
        read_private(tmp_path / "nothing")
