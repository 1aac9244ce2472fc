"""In what pieces programs send and receive over TCP. For the traffic, and for the buffers of its hosts."""

PIECE_LEAST_BYTES, PIECE_MOST_BYTES = 256 << 10, 4 << 20
PIECES_TOTAL_BYTES = 64 << 20
"""A connection's piece, and those of all together: what the sender hands to the kernel at once, and how much
has to arrive before the receiver wakes (SO_RCVLOWAT). Each costs both two system calls, some 50 us of
User-Mode Linux; but what waits takes memory, and what is to be forwarded should not wait."""

SEND_PIECES = 4
SEND_START_LEAST_BYTES = 87380
"""The send buffer that a connection starts with, in pieces of what its program sends at once, and what Linux
has by itself. It grows as Linux likes; one that starts small is filled in smaller pieces."""


def piece_bytes(flows: int) -> int:
    """Return in what pieces each of some connections is sent and received."""
    return max(PIECE_LEAST_BYTES, min(PIECE_MOST_BYTES, PIECES_TOTAL_BYTES // max(flows, 1)))


def send_start_bytes(transfers: int) -> int:
    """Return the send buffer in bytes that each of some connections starts with."""
    piece = piece_bytes(transfers)
    return SEND_PIECES * piece if piece > PIECE_LEAST_BYTES else SEND_START_LEAST_BYTES
