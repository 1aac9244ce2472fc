"""Writes packets as a pcapng file: one interface, nanosecond timestamps. Imports little; runs inside the lab.

draft-ietf-opsawg-pcapng: section header, interface description, enhanced packets, interface statistics.
"""

from __future__ import annotations

import struct
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

_SECTION, _INTERFACE, _STATISTICS, _PACKET = 0x0A0D0D0A, 1, 5, 6
_MAGIC = 0x1A2B3C4D
_ETHERNET = 1
_END, _COMMENT = 0, 1
_IF_NAME, _IF_TSRESOL = 2, 9
_IF_RECEIVED, _IF_DROPPED = 4, 5
_NANOSECONDS = b"\x09"
_FLUSH_BYTES = 1 << 20


class PcapngWriter:
    """A capture of one interface. `comment` stands in the file's header."""

    def __init__(self, path: Path, interface: str, *, snaplen: int, comment: str) -> None:
        self._file: BinaryIO = path.open("wb")
        self._waiting = bytearray()
        header = struct.pack("<IHHq", _MAGIC, 1, 0, -1)
        self._block(_SECTION, header + _options((_COMMENT, comment.encode())))
        described = struct.pack("<HHI", _ETHERNET, 0, snaplen)
        options = _options((_IF_NAME, interface.encode()), (_IF_TSRESOL, _NANOSECONDS))
        self._block(_INTERFACE, described + options)
        self._flush()  # an empty capture is one too

    def packet(self, time_ns: int, data: bytes, length: int) -> None:
        """Add a packet of `length` bytes, of which `data` are kept."""
        head = struct.pack("<IIIII", 0, time_ns >> 32, time_ns & 0xFFFFFFFF, len(data), length)
        self._block(_PACKET, head + data)
        if len(self._waiting) >= _FLUSH_BYTES:
            self._flush()

    def close(self, time_ns: int, *, received: int, dropped: int) -> None:
        """Add how many packets there were and how many the capture itself lost, and close the file."""
        head = struct.pack("<III", 0, time_ns >> 32, time_ns & 0xFFFFFFFF)
        counts = ((_IF_RECEIVED, received), (_IF_DROPPED, dropped))
        options = _options(*((code, struct.pack("<Q", count)) for code, count in counts))
        self._block(_STATISTICS, head + options)
        self._flush()
        self._file.close()

    def __enter__(self) -> PcapngWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _block(self, kind: int, body: bytes) -> None:
        padded = body + bytes(-len(body) % 4)
        size = len(padded) + 12
        self._waiting += struct.pack("<II", kind, size) + padded + struct.pack("<I", size)

    def _flush(self) -> None:
        self._file.write(self._waiting)
        self._file.flush()
        self._waiting.clear()


def _options(*options: tuple[int, bytes]) -> bytes:
    parts = [struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4) for code, value in options]
    return b"".join(parts) + struct.pack("<HH", _END, 0)
