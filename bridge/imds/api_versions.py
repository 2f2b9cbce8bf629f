"""The api-version of requests to IMDS, and the versions to try if IMDS refuses it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from bridge.known_api_versions import INSTANCE_API_VERSIONS

# Azure's documentation of the instance document: the newest has all that a record says of the VM;
# the others are the first with tagsList, with resourceId, and with a name and a vmId.
INSTANCE_VERSIONS_TRIED: Final = (
    INSTANCE_API_VERSIONS[-1],
    "2019-06-04",
    "2019-03-11",
    "2017-04-02",
)
MAX_TRIED_VERSIONS: Final = 10
"""How many versions one request tries: IMDS refuses more than five requests a second."""
MAX_REFUSALS: Final = 10
"""After how many refusals in a row a version that has worked is given up."""
PROBE_EVERY_REQUESTS: Final = 60
"""After how many requests with another version the wanted one is tried again."""


class ApiVersions:
    """The current version, and the versions that could replace it."""

    def __init__(self, wanted: str, known: Iterable[str]) -> None:
        self.current = wanted
        self._wanted = wanted
        self._requests = 0
        self._fallbacks = [version for version in known if version < wanted]
        self._works = False
        self._refusals = 0

    def candidates(self) -> list[str]:
        """Return the versions to try now, in order. One that has worked stays first for some
        refusals.
        """
        self._requests += 1
        if self.current != self._wanted and not self._requests % PROBE_EVERY_REQUESTS:
            return [self._wanted, self.current]
        if self._works and self._refusals + 1 < MAX_REFUSALS:
            return [self.current]
        return [self.current, *(each for each in self._fallbacks if each != self.current)]

    def room(self, tried: Sequence[str]) -> int:
        """Return how many of the versions in a refusal may be tried after these."""
        return max(0, MAX_TRIED_VERSIONS - len(tried)) if len(tried) > len(self._fallbacks) else 0

    def note_accepted(self, version: str) -> None:
        """Note that the version works."""
        self.current = version
        self._works = True
        self._refusals = 0

    def note_refused(self) -> None:
        """Note that all versions that were tried were refused."""
        self._refusals += 1
