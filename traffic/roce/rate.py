"""What a congestion control is to the transport, and the simplest one.

An algorithm sees events with their time and says at which rate its queue pair may send; it reads no clock and
sends nothing. To add one: a class with these members, and its name in `make_rate_control`. What an algorithm
needs beside that:

* **Swift** (delay): the round trip of each acknowledgement and how much of it was in the hosts. A sender
  knows when it sent what is acknowledged, so `on_ack` could be given the difference; acknowledgements must
  then be more frequent than one for 16 packets.
* **HPCC** (in-band telemetry): each switch on the way must write its queue length, bytes sent, rate and time
  into the packet. Open vSwitch cannot; a queue's state is known to the probe only.
"""

from __future__ import annotations

from typing import Protocol

NEVER_NS = 1 << 62
"""Later than anything."""


class RateControl(Protocol):
    """The rate of one queue pair. All times are nanoseconds of one clock that never goes back.

    `rate_bps` holds from the last event on until `next_change_ns`, when `advance` must be called; it counts
    all bytes of a frame.
    """

    rate_bps: float
    next_change_ns: int

    def advance(self, now_ns: int) -> None:
        """Let everything happen that is due by now."""

    def on_sent(self, frame_bytes: int, now_ns: int) -> None:
        """A frame was sent."""

    def on_cnp(self, now_ns: int) -> None:
        """A congestion notification arrived."""

    def on_ack(self, now_ns: int) -> None:
        """The receiver acknowledged something new."""


class FixedRate:
    """No congestion control: always the same rate."""

    next_change_ns = NEVER_NS

    def __init__(self, rate_bps: float) -> None:
        self.rate_bps = rate_bps

    def advance(self, now_ns: int) -> None:
        """Nothing changes."""

    def on_sent(self, frame_bytes: int, now_ns: int) -> None:
        """Nothing changes."""

    def on_cnp(self, now_ns: int) -> None:
        """Nothing changes."""

    def on_ack(self, now_ns: int) -> None:
        """Nothing changes."""
