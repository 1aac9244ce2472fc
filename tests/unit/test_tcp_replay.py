"""What the traffic program asks of its sockets."""

from __future__ import annotations

import contextlib
import socket

import pytest

from traffic.tcp_replay import Replay

TCP_TX_DELAY = 37


@pytest.mark.parametrize(("dilation", "delay_us"), [(1, 0), (2, 512), (1000, 511_488), (2.5, 768)])
def test_tcps_own_queue_grows_with_the_dilation(dilation: float, delay_us: int) -> None:
    replay = Replay(
        [], congestion_control="reno", namespace=lambda _host: contextlib.nullcontext(), dilation=dilation
    )
    with replay._socket("") as sock:
        assert sock.getsockopt(socket.IPPROTO_TCP, TCP_TX_DELAY) == delay_us
