"""TLS to a hub, with sockets that another thread can cut. It always verifies the certificate."""

from __future__ import annotations

import socket
import ssl
import weakref
from typing import Final

import certifi

from sinks.shared.sockets import cut

HANDSHAKE_SECONDS: Final = 10.0


class TlsSockets(ssl.SSLContext):
    """A TLS context that limits its handshakes, and remembers its sockets to cut them."""

    sockets: weakref.WeakSet[ssl.SSLSocket]
    is_cut: bool

    @classmethod
    def trusting_the_system(cls) -> TlsSockets:
        """Return a context that trusts the system's authorities, so that a private CA works, and
        those of the SDK.
        """
        made = cls(ssl.PROTOCOL_TLS_CLIENT)
        made.sockets = weakref.WeakSet()
        made.is_cut = False
        made.load_default_certs()
        made.load_verify_locations(certifi.where())
        return made

    def wrap_socket(  # noqa: PLR0917  # the signature of the base
        self,
        sock: socket.socket,
        server_side: bool = False,  # noqa: FBT001, FBT002
        do_handshake_on_connect: bool = True,  # noqa: FBT001, FBT002
        suppress_ragged_eofs: bool = True,  # noqa: FBT001, FBT002
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLSocket:
        """Shake hands as the base class does, within `HANDSHAKE_SECONDS`. Raises `OSError` if it is
        cut.
        """
        sock.settimeout(HANDSHAKE_SECONDS)
        wrapped = super().wrap_socket(
            sock,
            server_side=server_side,
            do_handshake_on_connect=False,
            suppress_ragged_eofs=suppress_ragged_eofs,
            server_hostname=server_hostname,
            session=session,
        )
        self.sockets.add(wrapped)
        if self.is_cut:
            cut(wrapped)
        if do_handshake_on_connect:
            try:
                wrapped.do_handshake()
            except BaseException:
                wrapped.close()  # the SDK only knows the socket that was wrapped
                raise
        return wrapped

    def cut(self) -> None:
        """Cut every socket of this context, and every socket that it makes later."""
        self.is_cut = True
        for wrapped in list(self.sockets):
            cut(wrapped)
