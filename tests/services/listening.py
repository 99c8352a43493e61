"""Captures packets on loopback, as an eavesdropper between two machines would: needs root, or CAP_NET_RAW."""

from __future__ import annotations

import ctypes
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.services.process import port_of, reserve_port

_EVERY_PROTOCOL = 3
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE, _SOL_PACKET, _PACKET_STATISTICS = 26, 33, 263, 6
_ROOM = 64 << 20


class Heard:
    """What was said over TCP from or to a range of ports. Each packet is kept once."""

    def __init__(self, ports: range) -> None:
        # Without its header of the wire: it begins with that of IP.
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_EVERY_PROTOCOL))
        program = b"".join(struct.pack("HBBI", *each) for each in _filter(ports))
        self._program = ctypes.create_string_buffer(program)
        described = struct.pack("HL", len(program) // 8, ctypes.addressof(self._program))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, described)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _ROOM)
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.2)
        self._is_over = threading.Event()
        self._packets: list[bytes] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def has(self, text: str) -> bool:
        """Whether the text was in a packet, as it is."""
        return any(text.encode() in packet for packet in self._packets)

    @property
    def size(self) -> int:
        return sum(map(len, self._packets))

    def stop(self) -> None:
        """Hears out what has come, and makes sure that nothing was missed."""
        self._is_over.set()
        self._thread.join()
        missed = struct.unpack("II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1]
        self._socket.close()
        assert missed == 0, f"{missed} packets were missed"

    def _listen(self) -> None:
        while True:
            try:
                packet, address = self._socket.recvfrom(1 << 17)
            except TimeoutError:
                if self._is_over.is_set():
                    return
                continue
            if address[2] != socket.PACKET_OUTGOING:  # Loopback shows each twice.
                self._packets.append(packet)


@contextmanager
def listening(ports: range) -> Iterator[Heard]:
    """Hears what is said meanwhile. PermissionError for whoever may not."""
    heard = Heard(ports)
    try:
        yield heard
    finally:
        heard.stop()


@contextmanager
def reserved_range(count: int) -> Iterator[range]:
    """A row of ports, reserved for servers that this process starts."""
    reserved: list[socket.socket] = []
    while len(reserved) < count:
        try:
            reserved.append(reserve_port(port_of(reserved[-1]) + 1 if reserved else 0))
        except (OSError, OverflowError):  # This one is taken: begin elsewhere.
            while reserved:
                reserved.pop().close()
    try:
        yield range(port_of(reserved[0]), port_of(reserved[-1]) + 1)
    finally:
        for each in reserved:
            each.close()


def _filter(ports: range) -> list[tuple[int, int, int, int]]:
    """The kernel's own machine code for: TCP, and one of the two ports is in the range."""
    load_byte, load_half, load_header_length = 0x30, 0x48, 0xB1
    equal, at_least, more, give = 0x15, 0x35, 0x25, 0x06
    return [
        (load_byte, 0, 0, 9),
        (equal, 0, 8, socket.IPPROTO_TCP),
        (load_header_length, 0, 0, 0),
        (load_half, 0, 0, 0),
        (at_least, 0, 1, ports.start),
        (more, 0, 3, ports.stop - 1),
        (load_half, 0, 0, 2),
        (at_least, 0, 2, ports.start),
        (more, 1, 0, ports.stop - 1),
        (give, 0, 0, 1 << 18),
        (give, 0, 0, 0),
    ]
