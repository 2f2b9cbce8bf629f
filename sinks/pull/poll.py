"""The long poll: a thread that asks for commands and hands them in."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from sinks.base import CommandMessage, SinkContext, SinkError
from sinks.http.client import Answer, HttpClient, HttpLimits
from sinks.http.outcome import pointing_to, seconds_to_wait, status_words
from sinks.pull.settings import HINTS, URL_HINT, PullSettings
from wire.command import MAX_TOKEN_BYTES

WAIT_SECONDS: Final = 25
"""How long the server may hold its answer back; below what proxies cut (30 s and more)."""
MAX_TOKENS: Final = 64
# Room for quotes, commas and line breaks around each token.
_LARGEST: Final = MAX_TOKENS * (MAX_TOKEN_BYTES + 16)
# The least time from one request to the next: a server that does not hold its answers back, or
# gives the same commands again and again, is not asked a thousand times a second.
_PACE_EMPTY: Final = 1.0
_PACE_GIVEN: Final = 0.1
_FULL_SECONDS: Final = 0.05


class Poll:
    """One thread over one kept connection: `fetch` once to see that it works, `start`, `stop`."""

    def __init__(
        self, settings: PullSettings, context: SinkContext, *, name: str, limits: HttpLimits
    ) -> None:
        self._settings = settings
        self._context = context
        self._name = name
        self._client = HttpClient(settings.address, limits, shown=settings.shown)
        self._stopping = threading.Event()
        self._trouble: Exception | None = None
        self._thread: threading.Thread | None = None

    def fetch(self, *, wait: int) -> list[bytes]:
        """The tokens that the server has, or gets within `wait` seconds. Raises `SinkError`."""
        return self._tokens(self._ask(wait))

    def start(self, tokens: Sequence[bytes]) -> None:
        """Hand these in, then ask for more until `stop`."""
        self._thread = threading.Thread(
            target=self._run, args=(tokens,), name=f"pull {self._name}", daemon=True
        )
        self._thread.start()

    def ensure(self) -> None:
        """Raise what has ended the thread, if anything has."""
        if self._trouble is not None:
            raise self._trouble

    def stop(self, *, seconds: float) -> None:
        """Ask no more, and hand nothing in from now on; waits so long for the thread's end."""
        self.cut()
        if self._thread is not None:
            self._thread.join(seconds)
        self._client.close()

    def cut(self) -> None:
        """The same, without waiting: what is being asked is cut off."""
        self._stopping.set()
        self._client.abort()

    def _run(self, tokens: Sequence[bytes]) -> None:
        due = 0.0
        try:
            while not self._stopping.is_set():
                self._hand_in(tokens)
                self._stopping.wait(due - time.monotonic())
                due = time.monotonic()
                tokens = self._tokens(self._ask_twice())
                due += _PACE_GIVEN if tokens else _PACE_EMPTY
        except Exception as error:  # noqa: BLE001  # the end of a thread: raised by `ensure`
            self._trouble = error

    def _hand_in(self, tokens: Sequence[bytes]) -> None:
        """Hand in one after the other, waiting while the bridge has too many."""
        for token in tokens:
            message = CommandMessage(token=token, channel=self._name)
            while not (self._stopping.is_set() or self._context.command(message)):
                self._stopping.wait(_FULL_SECONDS)

    def _ask_twice(self) -> Answer:
        """Something on the way cuts a connection that waits now and then: no trouble yet."""
        try:
            return self._ask(WAIT_SECONDS)
        except SinkError:
            self._stopping.wait(random.random())  # noqa: S311  # jitter
            return self._ask(WAIT_SECONDS)

    def _ask(self, wait: int) -> Answer:
        return self._client.get(
            {"vm": self._context.vm.vm_id, "wait": str(wait)},
            {
                **self._settings.authorization(),
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": f"scheduled-events-bridge/{self._context.version}",
            },
            largest=_LARGEST,
        )

    def _tokens(self, answer: Answer) -> list[bytes]:
        """The tokens in an answer. Raises `SinkError` on anything but 204 and a list of tokens."""
        if answer.status == HTTPStatus.NO_CONTENT:
            return []
        answered = f"{self._settings.shown} answered {status_words(answer.status)}"
        if answer.status == HTTPStatus.OK:
            tokens = _read(answer.body)
            if tokens is None:
                raise SinkError(
                    f"{answered} with a body that is not a JSON list of at most {MAX_TOKENS} "
                    f"tokens; {URL_HINT}"
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
    """The tokens in a body, each cut just above the largest allowed; None for anything else."""
    try:
        loaded = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(loaded, list) or len(loaded) > MAX_TOKENS:
        return None
    if not all(isinstance(each, str) for each in loaded):
        return None
    # Text that UTF-8 cannot hold is not a token; the verifier refuses it.
    return [each[: MAX_TOKEN_BYTES + 1].encode("utf-8", "replace") for each in loaded]
