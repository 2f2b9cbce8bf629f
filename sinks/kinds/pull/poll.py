"""The long poll: a thread that asks for commands and hands them in."""

from __future__ import annotations

import hashlib
import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from sinks.base import CommandMessage, SinkContext, SinkError
from sinks.http.client import Answer, HttpClient, HttpLimits
from sinks.http.outcome import pointing_to, seconds_to_wait, status_words
from sinks.kinds.pull.settings import HINTS, URL_HINT, PullSettings
from wire.command import MAX_TOKEN_BYTES

WAIT_SECONDS: Final = 25
"""How long the server may delay its answer; less than the time after which proxies cut (30 s and
more).
"""
MAX_TOKENS: Final = 64
"""How many are read from one answer; the others come with the next answers."""
COPY_SECONDS: Final = 10.0
"""How long copies of a token that was handed in are ignored at first."""
MAX_COPY_SECONDS: Final = 60.0
"""How long copies are ignored after several of them. It is not longer because a token may be
refused for a reason that passes, such as a trust file that is not yet the new one.
"""
REMEMBERED: Final = 1024
"""How many handed-in tokens are remembered."""
# Room for quotes, commas and line breaks around each token.
_MAX_BYTES: Final = MAX_TOKENS * (MAX_TOKEN_BYTES + 16)
# The least time from one request to the next: a server that does not hold its answers back, or
# gives the same commands again and again, is not asked a thousand times a second. It is asked
# faster only if it had something new.
_PACE_EMPTY: Final = 1.0
_PACE_GIVEN: Final = 0.1
_FULL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copies:
    """The next time at which a copy of a token is handed in again."""

    due: float
    """When the next copy is handed in, by the monotonic clock."""
    pause: float
    """Seconds before that time, in which copies are ignored."""


class HandedIn:
    """The tokens that were handed in. For one thread at a time.

    A server sends a token until it has the receipt, so copies are ignored for a time, each time for
    longer. After that a copy is handed in and answered like any replay, because the server may have
    lost the receipt.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._copies: dict[bytes, _Copies] = {}
        """By the digest of the token, in the order in which they were last handed in."""

    def is_due(self, token: bytes) -> bool:
        """Check whether to hand the token in: it is new, or was last handed in long enough ago."""
        known = self._copies.get(_digest(token))
        return known is None or known.due <= self._monotonic()

    def add(self, token: bytes) -> None:
        """Note that the token was handed in."""
        digest = _digest(token)
        known = self._copies.pop(digest, None)
        pause = COPY_SECONDS if known is None else min(2 * known.pause, MAX_COPY_SECONDS)
        self._copies[digest] = _Copies(due=self._monotonic() + pause, pause=pause)
        if len(self._copies) > REMEMBERED:
            del self._copies[next(iter(self._copies))]


class Poll:
    """One thread over one kept connection: `fetch` once to see that it works, then `start`, then
    `stop`.
    """

    def __init__(
        self,
        settings: PullSettings,
        context: SinkContext,
        handed_in: HandedIn,
        *,
        name: str,
        limits: HttpLimits,
    ) -> None:
        self._settings = settings
        self._context = context
        self._handed_in = handed_in
        self._name = name
        self._client = HttpClient(settings.address, limits, shown=settings.shown)
        self._stopping = threading.Event()
        self._trouble: Exception | None = None
        self._thread: threading.Thread | None = None

    def fetch(self, *, wait: int) -> list[bytes]:
        """Return the tokens that the server has, or gets within `wait` seconds. Raises
        `SinkError`.
        """
        return self._tokens(self._request(wait))

    def start(self, tokens: Sequence[bytes]) -> None:
        """Hand these tokens in, then ask for more until `stop`."""
        self._thread = threading.Thread(
            target=self._run, args=(tokens,), name=f"pull {self._name}", daemon=True
        )
        self._thread.start()

    def ensure(self) -> None:
        """Raise the error that has ended the thread, if it has ended."""
        if self._trouble is not None:
            raise self._trouble

    def stop(self, *, seconds: float) -> None:
        """Stop polling and handing in commands; wait at most so many seconds for the thread's
        end.
        """
        self.cut()
        if self._thread is not None:
            self._thread.join(seconds)
        self._client.close()

    def cut(self) -> None:
        """Stop as `stop` does, without waiting; a request under way is cut off."""
        self._stopping.set()
        self._client.abort()

    def _run(self, tokens: Sequence[bytes]) -> None:
        due = 0.0
        try:
            while not self._stopping.is_set():
                due += _PACE_GIVEN if self._hand_in(tokens) else _PACE_EMPTY
                self._stopping.wait(due - time.monotonic())
                due = time.monotonic()
                tokens = self._tokens(self._request_twice())
        except Exception as error:  # noqa: BLE001  # the end of a thread: raised by `ensure`
            self._trouble = error

    def _hand_in(self, tokens: Sequence[bytes]) -> int:
        """Hand in the tokens that are due, one by one, and wait while the bridge has too many;
        return how many were handed in.
        """
        count = 0
        for token in tokens:
            if count == MAX_TOKENS or self._stopping.is_set():
                break
            if not self._handed_in.is_due(token):
                continue
            message = CommandMessage(token=token, channel=self._name)
            while not self._context.command(message):
                if self._stopping.wait(_FULL_SECONDS):
                    return count
            self._handed_in.add(token)
            count += 1
        return count

    def _request_twice(self) -> Answer:
        """Request the tokens. If the connection is cut, request them once more: proxies sometimes
        cut a connection that waits.
        """
        try:
            return self._request(WAIT_SECONDS)
        except SinkError:
            self._stopping.wait(random.random())  # noqa: S311  # jitter
            return self._request(WAIT_SECONDS)

    def _request(self, wait: int) -> Answer:
        return self._client.get(
            {"vm": self._context.vm.vm_id, "wait": str(wait)},
            {
                **self._settings.authorization(),
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": f"scheduled-events-bridge/{self._context.version}",
            },
            largest=_MAX_BYTES,
        )

    def _tokens(self, answer: Answer) -> list[bytes]:
        """Return the tokens in an answer. Raises `SinkError` on anything but 204 and a list of
        tokens.
        """
        if answer.status == HTTPStatus.NO_CONTENT:
            return []
        answered = f"{self._settings.shown} answered {status_words(answer.status)}"
        if answer.status == HTTPStatus.OK:
            tokens = _read(answer.body)
            if tokens is None:
                raise SinkError(
                    f"{answered} with a body that is not a JSON list of tokens; {URL_HINT}"
                )
            return tokens
        if HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST:
            raise SinkError(f"{answered}, which is not followed{pointing_to(answer.location)}")
        hint = HINTS.get(answer.status)
        raise SinkError(
            f"{answered}; {hint}" if hint else answered,
            retry_after=seconds_to_wait(answer.retry_after, now=self._context.now()),
        )


def _read(body: bytes) -> list[bytes] | None:
    """Return the tokens in a body, each cut just above the largest allowed size; None if it is not
    a list.
    """
    try:
        loaded = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(loaded, list):
        return None
    return [_token(each) for each in loaded]


def _token(loaded: object) -> bytes:
    """Return a token as bytes; empty if it is not text. The verifier refuses one that is not valid,
    and the other tokens in the list are used.
    """
    if not isinstance(loaded, str):
        return b""
    return loaded[: MAX_TOKEN_BYTES + 1].encode("utf-8", "replace")


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
