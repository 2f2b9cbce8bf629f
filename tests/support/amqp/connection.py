"""One connection to the stand-in hub: its frames, sessions and links, on a thread of its own."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any

from support.amqp.codec import (
    AmqpReader,
    Described,
    Symbol,
    Symbols,
    UByte,
    UInt,
    ULong,
    UShort,
    encode,
)
from support.amqp.faults import HubFault
from support.amqp.links import Consumer, Link, Requests, Sender, address_of, error

if TYPE_CHECKING:
    from support.amqp.server import EventHubServer

OPEN, BEGIN, ATTACH, FLOW, TRANSFER = 0x10, 0x11, 0x12, 0x13, 0x14
DISPOSITION, DETACH, END, CLOSE = 0x15, 0x16, 0x17, 0x18
SASL_MECHANISMS, SASL_OUTCOME = 0x40, 0x44
SASL_HEADER, AMQP_HEADER = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
MAX_FRAME = 65536
WINDOW = UInt(1_000_000)


class Connection:
    """Reads frames until the peer goes, and answers as a namespace would."""

    def __init__(self, server: EventHubServer, peer: socket.socket) -> None:
        self.server = server
        # Else an answer waits up to 40 ms for the peer to acknowledge the one before it.
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = peer
        self._write_lock = threading.RLock()
        self._links: dict[tuple[int, int], Link] = {}
        self._delivery = 0
        self._peer_frame = MAX_FRAME

    def run(self) -> None:
        """Serve until the end; a peer that breaks off is normal."""
        try:
            if self.server.struck(HubFault.SILENT):
                while self._socket.recv(65536):
                    pass
            else:
                self._serve()
        except (OSError, EOFError):
            pass
        except Exception as bug:  # a thread's exception would only be printed
            self.server.bugs.append(bug)
        finally:
            self.cut()

    def _serve(self) -> None:
        if self.server.tls is not None:
            self._socket = self.server.tls.wrap_socket(self._socket, server_side=True)
        self._negotiate()
        while self._frame():
            pass

    def cut(self) -> None:
        """End the TCP connection without a word."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self._socket.close()

    def pump(self) -> None:
        """Send what consumers on this connection have credit for."""
        for link in list(self._links.values()):
            if isinstance(link, Consumer):
                with contextlib.suppress(OSError):
                    link.pump()

    def detach_senders(self, condition: str) -> None:
        """Detach every link that a producer sends on."""
        for link in list(self._links.values()):
            if isinstance(link, Sender):
                with contextlib.suppress(OSError):
                    self.detach(link, condition, "the link was idle")

    # Reading.

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def _negotiate(self) -> None:
        if self._exactly(8) == SASL_HEADER:
            self._raw(SASL_HEADER)
            mechanisms = Symbols(("ANONYMOUS", "PLAIN", "MSSBCBS", "EXTERNAL"))
            self.send(0, SASL_MECHANISMS, [mechanisms], frame_type=1)
            self._exactly(int.from_bytes(self._exactly(4), "big") - 4)
            self.send(0, SASL_OUTCOME, [UByte(0), None], frame_type=1)
            self._exactly(8)
        self._raw(AMQP_HEADER)

    def _frame(self) -> bool:
        size, offset, _, channel = struct.unpack(">IBBH", self._exactly(8))
        payload = self._exactly(size - 8)[(offset - 2) * 4 :]
        if not payload:
            return True
        reader = AmqpReader(payload)
        frame: Described = reader.value()
        fields = frame.value + [None] * 14
        return self._handle(channel, frame.code, fields, reader.rest)

    def _handle(self, channel: int, code: int | Symbol, fields: list[Any], payload: bytes) -> bool:
        if code == OPEN:
            self._peer_frame = int(fields[2] or MAX_FRAME)
            self._answer_open()
        elif code == BEGIN:
            begin = [UShort(channel), UInt(0), WINDOW, WINDOW, UInt(255), None, None, None]
            self.send(channel, BEGIN, begin)
        elif code == ATTACH:
            self._attach(channel, fields)
        elif code == DETACH:
            self._links.pop((channel, fields[0]), None)
            self.send(channel, DETACH, [fields[0], True, None])
        elif code == END:
            self._links = {key: link for key, link in self._links.items() if key[0] != channel}
            self.send(channel, END, [None])
        elif code == CLOSE:
            self.send(0, CLOSE, [None])
            return False
        elif (code in (FLOW, TRANSFER) and fields[4 if code == FLOW else 0]) is not None:
            link = self._links.get((channel, fields[4 if code == FLOW else 0]))
            if link is not None and code == FLOW:
                link.flow(fields)
            elif link is not None:
                link.transfer(fields, payload)
        return True

    # Writing.

    def _raw(self, data: bytes) -> None:
        with self._write_lock:
            self._socket.sendall(data)

    def send(
        self,
        channel: int,
        code: int,
        fields: list[Any],
        payload: bytes = b"",
        *,
        frame_type: int = 0,
    ) -> None:
        """Send one frame; every field is written, nulls too, because the SDK counts places."""
        body = encode(Described(code, fields)) + payload
        self._raw(struct.pack(">IBBH", len(body) + 8, 2, frame_type, channel) + body)

    def _answer_open(self) -> None:
        idle = UInt(240_000)  # Event Hubs: closes a connection that is silent for 4 minutes
        fields: list[Any] = ["stand-in", None, UInt(MAX_FRAME), UShort(4999), idle, *[None] * 4, {}]
        self.send(0, OPEN, fields)

    def _attach(self, channel: int, fields: list[Any]) -> None:
        link = self._link(channel, fields)
        self._links[(channel, link.handle)] = link
        is_sender = isinstance(link, Sender)
        if is_sender and self.server.struck(HubFault.NO_ATTACH):
            return
        refusal = self.server.struck(HubFault.REFUSE_ATTACH) if is_sender else None
        announced = self.server.announced_size or self.server.max_message_size
        answer = [
            fields[0],
            link.handle,
            not fields[2],
            fields[3],
            fields[4],
            fields[5],
            None if refusal else fields[6],
            None,
            None,
            None if link.is_sink else UInt(0),
            ULong(announced),
            None,
            None,
            None,
        ]
        self.send(channel, ATTACH, answer)
        refusal = refusal or (self.server.struck(HubFault.DETACH_AT_ONCE) if is_sender else None)
        if refusal:
            self.detach(link, refusal.condition, refusal.description)
        elif link.is_sink:
            self.grant(link)

    def _link(self, channel: int, fields: list[Any]) -> Link:
        handle, receives = fields[1], bool(fields[2])
        address = address_of(fields[5] if receives else fields[6])
        if address in ("$cbs", "$management"):
            return Requests(self, channel, handle, address=address, is_sink=not receives)
        if receives:
            return Consumer(self, channel, handle, address=address, source=fields[5])
        return Sender(self, channel, handle, address=address)

    def grant(self, link: Link) -> None:
        """Give a sending peer its credit, counted anew after each delivery."""
        window = [UInt(link.received), WINDOW, UInt(0), WINDOW]
        credit = [link.handle, UInt(link.received), UInt(300), None, False, False, None]
        self.send(link.channel, FLOW, window + credit)

    def settle(self, link: Link, delivery: int, outcome: Described) -> None:
        """Tell the peer what became of its delivery."""
        first = UInt(delivery)
        self.send(link.channel, DISPOSITION, [True, first, first, True, outcome, False])

    def detach(self, link: Link, condition: str, description: str) -> None:
        """End a link with an error."""
        self._links.pop((link.channel, link.handle), None)
        self.send(link.channel, DETACH, [link.handle, True, error(condition, description)])

    def close(self, condition: str, description: str) -> None:
        """End the connection with an error."""
        self.send(0, CLOSE, [error(condition, description)])

    def partner(self, link: Link) -> Link | None:
        """The link by which the answer to a request goes back."""
        for other in list(self._links.values()):
            if isinstance(other, Requests) and other.address == link.address and not other.is_sink:
                return other
        return None

    def deliver(self, link: Link, message: bytes) -> None:
        """Send a message to the peer, in as many frames as it takes."""
        with self._write_lock:
            number, room = self._delivery, max(self._peer_frame - 512, 512)
            self._delivery += 1
            for start in range(0, len(message), room):
                more = start + room < len(message)
                tag = struct.pack(">I", number)
                fields = [link.handle, UInt(number), tag, UInt(0), False, more, *[None] * 4, False]
                self.send(link.channel, TRANSFER, fields, message[start : start + room])
