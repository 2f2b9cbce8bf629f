"""The keys of one JWKS file, each with its issuer: the list of who may send commands. Nothing is
fetched.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from bridge.config.approval import ApprovalSettings
from sinks.shared.call_with_timeout import StuckError, call_with_timeout
from sinks.shared.errors import ConfigurationError, unusable_file
from sinks.shared.threads import try_to_start
from wire.keys import ALGORITHMS, MAX_FILE_BYTES, public_key
from wire.strictjson import JsonError, canonical_json, load_json

_LOG: Final = logging.getLogger(__name__)

READ_SECONDS: Final = 2.0
"""How long a reading of the file may take: deadlines of preparations wait for it, too."""

_MEMBERS: Final = ("kid", "alg", "iss", "kty", "crv", "x", "y")
"""The members of a key in the file that identify it."""

_Reading = Future[bytes]
"""One reading of the file."""


class TrustError(ValueError):
    """The file is not a JWKS that can be trusted; the message says which key and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedKey:
    """A public key, with the only issuer that may use it."""

    kid: str
    alg: str
    issuer: str
    digest: str
    """The SHA-256 of everything that identifies this key: another key with the same `kid` has
    another one.
    """
    key: Any = field(repr=False)


class Trust:
    """The keys of a file, read again when it changes; without a valid file no key is trusted."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.trouble: str | None = None
        """Why the file is not used; None if it is."""
        self._content: bytes | None = None
        self._keys: Mapping[str, TrustedKey] = {}
        self._reader = None if path is None else _Reader(path)

    @property
    def has_keys(self) -> bool:
        """Whether any key was trusted when the file was last read; any thread may ask."""
        return bool(self._keys)

    def find(self, kid: str) -> TrustedKey | None:
        """Return the key of this id, if it is trusted now."""
        self.refresh()
        return self._keys.get(kid)

    def keys(self) -> list[TrustedKey]:
        """Return every key that is trusted now."""
        self.refresh()
        return list(self._keys.values())

    def has(self, digest: str | None) -> bool:
        """Check whether the key with this digest is trusted now; None is no key."""
        self.refresh()
        return any(key.digest == digest for key in self._keys.values())

    def refresh(self) -> None:
        """Read the file again. Its bytes are compared, because two versions may have the same time
        stamp. A file whose mount does not answer cannot be read; once that is known, nothing waits
        for it.
        """
        if self.path is None or self._reader is None:
            return
        before = self.trouble
        try:
            content = self._reader.read()
            if content != self._content:
                self._keys = _keys(content, self.path)
                self._content = content
                self.trouble = None
        except (OSError, TrustError) as error:
            self._keys = {}
            self._content = None
            self.trouble = str(error)
        if self.trouble != before:
            extra = {"action": "trust_trouble" if self.trouble else "trust_ok"}
            _LOG.warning(self.trouble or "the trusted keys can be read again", extra=extra)


class _Reader:
    """Reads the file in one thread, which is kept: a mount that hangs holds no other thread, and no
    reading but the first needs a new one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._readings: SimpleQueue[_Reading | None] = SimpleQueue()
        self._last: _Reading | None = None
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._readings.put, None)

    def read(self) -> bytes:
        """Return what the file has now. Raises `OSError` or `TrustError`, also while an earlier
        reading has not ended: what that reading finds in the end may be out of date.
        """
        if self._last is None or self._last.done():
            self._ensure_thread()
            reading = self._last = _Reading()
            self._readings.put(reading)
            if wait((reading,), READ_SECONDS).done:
                return reading.result()
        raise TrustError(
            f"the file {self._path} was not read within {READ_SECONDS:g} s; see that its mount "
            "answers"
        )

    def _ensure_thread(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(
            target=_read_all, args=(self._path, self._readings), name="trust", daemon=True
        )
        if not try_to_start(thread):
            raise TrustError(
                f"the file {self._path} was not read, because no thread can be started; see that "
                "the limit of tasks and the memory suffice"
            )
        self._thread = thread


def trust_of(approval: ApprovalSettings) -> Trust:
    """Return the trusted keys. Raises `ConfigurationError` if the file is not valid. A file whose
    mount does not answer raises nothing, because it may be valid.
    """
    path = approval.trust
    try:
        if path is not None:
            call_with_timeout(READ_SECONDS, partial(read_trust, path))
    except StuckError:
        pass
    except OSError as error:
        what = f"SEB_APPROVAL__TRUST: the file {path} cannot be read"
        raise unusable_file(what, error) from None
    except TrustError as error:
        raise ConfigurationError(f"SEB_APPROVAL__TRUST: {error}") from None
    return Trust(path)


def read_trust(path: Path) -> dict[str, TrustedKey]:
    """Return the keys of a JWKS file by their id. Raises `TrustError`, or `OSError` if
    unreadable.
    """
    return _keys(_content(path), path)


def _read_all(path: Path, readings: SimpleQueue[_Reading | None]) -> None:
    while (reading := readings.get()) is not None:
        try:
            reading.set_result(_content(path))
        except Exception as error:  # noqa: BLE001  # raised again in the thread that waits
            reading.set_exception(error)


def _content(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise TrustError(f"{path} is not a file")  # reading a pipe would never end
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise TrustError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB; this is no JWKS")
    return content


def _keys(content: bytes, path: Path) -> dict[str, TrustedKey]:
    try:
        entries = load_json(content)["keys"]
    except (JsonError, KeyError, TypeError):
        raise TrustError(f"{path} is not a JWKS: it needs a list called keys") from None
    if not isinstance(entries, list):
        raise TrustError(f"{path} is not a JWKS: keys is not a list")
    keys = [_key(entry, f"{path}: key {index}") for index, entry in enumerate(entries)]
    found = {key.kid: key for key in keys}
    if len(found) != len(keys):
        raise TrustError(f"{path}: two keys have the same kid")
    return found


def _key(entry: object, where: str) -> TrustedKey:
    if not isinstance(entry, dict):
        raise TrustError(f"{where} is not an object")
    texts = {name: entry.get(name) for name in ("kid", "alg", "iss")}
    for name, text in texts.items():
        if not isinstance(text, str) or not text:
            raise TrustError(f"{where} has no {name}; `seb keys generate` writes all three")
    if "d" in entry or "k" in entry:
        raise TrustError(f"{where} is a private key; put only public keys here")
    wanted = ALGORITHMS.get(entry["alg"])
    if wanted is None or (entry.get("kty"), entry.get("crv")) != wanted:
        raise TrustError(f"{where} is neither EdDSA on Ed25519 nor ES256 on P-256")
    if entry.get("use", "sig") != "sig":
        raise TrustError(f"{where} is not for signatures")
    try:
        key = public_key(entry)
    except ValueError:
        raise TrustError(f"{where} is not a valid public key") from None
    members = {name: entry.get(name) for name in _MEMBERS}
    return TrustedKey(
        kid=entry["kid"],
        alg=entry["alg"],
        issuer=entry["iss"],
        digest=hashlib.sha256(canonical_json(members)).hexdigest(),
        key=key,
    )
