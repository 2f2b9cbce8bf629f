"""The file with the public keys whose commands count."""

import gc
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands.control_plane import LEAVE_OUT, IssuerKey, b64, jwks
from support.eventually import eventually
from support.faults.held_file import held
from support.threads import no_new_threads

from bridge.approval.trusted_keys import Trust, TrustError, read_trust
from wire.keys import MAX_FILE_BYTES

KEY = IssuerKey()
CURVE = IssuerKey("key-2", alg="ES256")


def private(signer: IssuerKey) -> dict[str, Any]:
    """Return the key with its private half, which the module must never return."""
    return signer.jwk(d="c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A trust file with one key."""
    path = tmp_path / "trust.json"
    path.write_text(jwks(KEY))
    return path


def test_a_key_is_not_in_its_repr(file: Path) -> None:
    """The `repr` of a key shows no key object."""
    assert "key=" not in repr(read_trust(file)[KEY.kid]).replace("TrustedKey", "")


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no kid": (lambda: KEY.jwk(kid=LEAVE_OUT), "has no kid"),
    "an empty kid": (lambda: KEY.jwk(kid=""), "has no kid"),
    "kid a number": (lambda: KEY.jwk(kid=1), "has no kid"),
    "no alg": (lambda: KEY.jwk(alg=LEAVE_OUT), "has no alg"),
    "no iss": (lambda: KEY.jwk(iss=LEAVE_OUT), "has no iss"),
    "an empty iss": (lambda: KEY.jwk(iss=""), "has no iss"),
    "iss a list": (lambda: KEY.jwk(iss=["a"]), "has no iss"),
    "a private key": (lambda: private(KEY), "is a private key"),
    "a private curve key": (lambda: private(CURVE), "is a private key"),
    "a shared secret": (
        lambda: {"kty": "oct", "kid": "k", "alg": "HS256", "iss": "i", "k": "c2VjcmV0"},
        "is a private key",
    ),
    "RSA": (
        lambda: {"kty": "RSA", "kid": "k", "alg": "RS256", "iss": "i", "n": "AQAB", "e": "AQAB"},
        "is neither",
    ),
    "alg none": (lambda: KEY.jwk(alg="none"), "is neither"),
    "alg of the other kind": (lambda: KEY.jwk(alg="ES256"), "is neither"),
    "another curve": (lambda: CURVE.jwk(crv="P-384"), "is neither"),
    "Ed448": (lambda: KEY.jwk(crv="Ed448"), "is neither"),
    "kty a list": (lambda: KEY.jwk(kty=["OKP"]), "is neither"),
    "for encryption": (lambda: KEY.jwk(use="enc"), "is not for signatures"),
    "no x": (lambda: KEY.jwk(x=LEAVE_OUT), "is not a valid public key"),
    "x cut short": (lambda: KEY.jwk(x=b64(bytes(31))), "is not a valid public key"),
    "x no text": (lambda: KEY.jwk(x=7), "is not a valid public key"),
    "no y": (lambda: CURVE.jwk(y=LEAVE_OUT), "is not a valid public key"),
    "a point off the curve": (lambda: CURVE.jwk(y=b64(bytes(32))), "is not a valid public key"),
    "a text": (lambda: "key", "is not an object"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_key_that_cannot_be_trusted_is_refused(file: Path, name: str) -> None:
    """One invalid key refuses the whole file, with the key and the reason."""
    make, why = REFUSED[name]
    file.write_text(json.dumps({"keys": [CURVE.jwk(kid="good"), make()]}))
    with pytest.raises(TrustError, match=f"key 1 {why}") as caught:
        read_trust(file)
    assert "c2VjcmV0" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b'{"keys": null}',
        b'{"keys": {"a": 1}}',
        b'{"keys": []',
        b"\xff\xfe",
        b"-----BEGIN PUBLIC KEY-----",
        b"[" * 100_000,
        b'{"keys": [], "keys": []}',
    ],
    ids=range(10),
)
def test_what_is_no_jwks_is_refused(file: Path, content: bytes) -> None:
    """A file that is not an object with a list `keys` is refused."""
    file.write_bytes(content)
    with pytest.raises(TrustError, match="is not a JWKS"):
        read_trust(file)


def test_two_keys_of_one_kid_are_refused(file: Path) -> None:
    """Two keys with the same kid are refused, because a token could mean either."""
    file.write_text(jwks(KEY, IssuerKey()))
    with pytest.raises(TrustError, match="two keys have the same kid"):
        read_trust(file)


def test_other_files_are_not_read(tmp_path: Path) -> None:
    """A directory, or a file without an end, is refused without waiting."""
    with pytest.raises(TrustError, match="is not a file"):
        read_trust(tmp_path)
    large = tmp_path / "large"
    with large.open("wb") as opened:
        opened.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(TrustError, match="is larger than 1 MiB"):
        read_trust(large)


def test_a_key_is_found_by_its_id_alone(file: Path) -> None:
    """A key is found by its kid, with regard to case."""
    trust = Trust(file)
    assert KEY.issuer == getattr(trust.find(KEY.kid), "issuer", None)
    assert [trust.find(kid) for kid in ("KEY-1", "", "key-1\0")] == [None] * 3


def test_rotation_takes_effect_at_once(file: Path) -> None:
    """After a rotation the next command is verified with the new keys only."""
    trust, new = Trust(file), IssuerKey("key-8")
    assert trust.find(KEY.kid)
    file.write_text(jwks(KEY, new))
    assert trust.find(KEY.kid)
    assert trust.find(new.kid)
    file.write_text(jwks(new))
    assert trust.find(KEY.kid) is None
    assert trust.find(new.kid)


def test_a_change_is_seen_whatever_the_time_stamp_says(file: Path) -> None:
    """A new file with the same size and time stamp is read."""
    trust, new = Trust(file), IssuerKey()
    old = trust.find(KEY.kid)
    stat = file.stat()
    file.write_text(jwks(new))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert stat.st_size == file.stat().st_size
    found = trust.find(KEY.kid)
    assert old is not None
    assert found is not None
    assert old.key != found.key


@pytest.mark.parametrize("broken", [b"", b'{"keys": [{', b'{"keys": [1]}'])
def test_a_broken_file_trusts_no_key(file: Path, broken: bytes) -> None:
    """While the file is broken no key is trusted; the reason is shown until it can be read."""
    trust, good = Trust(file), file.read_bytes()
    assert trust.find(KEY.kid)
    file.write_bytes(broken)
    assert trust.find(KEY.kid) is None
    assert str(file) in (trust.trouble or "")
    file.write_bytes(good)
    assert trust.find(KEY.kid)
    assert trust.trouble is None


def test_a_missing_file_trusts_no_key(file: Path) -> None:
    """While the file is missing no key is trusted; when it is back, its keys are."""
    trust, good = Trust(file), file.read_bytes()
    assert trust.find(KEY.kid)
    file.unlink()
    assert trust.find(KEY.kid) is None
    assert "No such file" in (trust.trouble or "")
    file.mkdir()
    assert trust.find(KEY.kid) is None
    file.rmdir()
    file.write_bytes(good)
    assert trust.find(KEY.kid)


def test_a_file_that_does_not_open_trusts_no_key() -> None:
    """A hanging mount delays one reading, and the late result of that is ignored."""
    before = set(threading.enumerate())
    with held(jwks(KEY)) as hold:
        trust, new = Trust(hold.path), IssuerKey("key-8")
        assert trust.find(KEY.kid) is None
        assert "was not read within" in (trust.trouble or "")
        assert trust.find(KEY.kid) is None
        assert [each.name for each in set(threading.enumerate()) - before] == ["trust"]
        hold.release(jwks(new))
        assert trust.find(KEY.kid) is None
        eventually(lambda: trust.find(new.kid) is not None, what="the new key")
        assert trust.trouble is None


def test_a_reading_needs_no_new_thread(file: Path) -> None:
    """While no thread can be started, the keys are the same, and a rotation takes effect."""
    trust, new = Trust(file), IssuerKey("key-8")
    assert trust.find(KEY.kid)
    with no_new_threads():
        assert trust.find(KEY.kid)
        file.write_text(jwks(new))
        assert trust.find(new.kid)
    assert trust.trouble is None


def test_a_thread_that_cannot_be_started_ends_no_command_for_good(file: Path) -> None:
    """If no thread can be started for the first reading, no key is trusted, with the reason, and
    the next reading tries again.
    """
    trust = Trust(file)
    with no_new_threads():
        assert trust.find(KEY.kid) is None
        assert "no thread can be started" in (trust.trouble or "")
        assert trust.find(KEY.kid) is None
    assert trust.find(KEY.kid)
    assert trust.trouble is None


def test_the_reader_ends_with_its_trust(file: Path) -> None:
    """A run that has ended leaves no thread that reads its file."""
    before = set(threading.enumerate())
    trust = Trust(file)
    assert trust.find(KEY.kid)
    readers = set(threading.enumerate()) - before
    assert [each.name for each in readers] == ["trust"]
    del trust
    gc.collect()
    for each in readers:
        each.join(10)
        assert not each.is_alive()
