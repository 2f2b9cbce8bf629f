"""The client of IMDS that the settings ask for; it decides where a client may look."""

from __future__ import annotations

from bridge.config.settings import DEFAULT_IMDS_URL, Settings
from bridge.imds.client import Imds
from bridge.imds.discovery import endpoints


def client(settings: Settings, timeout: float | None = None) -> Imds:
    """A client of IMDS as the settings say, or with another timeout in seconds.

    The endpoint is looked for elsewhere only by default: one that the owner named is the only one
    that is asked.
    """
    imds = settings.imds
    return Imds(
        imds.url,
        api_version=imds.api_version,
        timeout=timeout or imds.timeout,
        first_timeout=timeout or imds.first_timeout,
        discover=endpoints if imds.url == DEFAULT_IMDS_URL else tuple,
    )
