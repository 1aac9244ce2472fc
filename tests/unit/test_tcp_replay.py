"""What the traffic program asks of its sockets."""

from __future__ import annotations

import pytest

from traffic.tcp_replay import tx_delay_us


@pytest.mark.parametrize(
    ("dilation", "nic_bps", "delay_us"),
    [
        (1, 0, 0),
        (1, 10**11, 0),
        (2, 0, 512),
        (2.5, 0, 768),
        (1000, 10**6, 511_488),  # 1 Gbit/s: a millisecond at its rate, 125 kB
        (2000, 5 * 10**7, 43_980),  # 100 Gbit/s: 12.5 MB would be, and 1 MiB is the most
    ],
)
def test_tcps_own_queue_is_as_long_as_without_dilation(dilation: float, nic_bps: int, delay_us: int) -> None:
    assert tx_delay_us(dilation, nic_bps) == delay_us
    # What the kernel makes of it at twice the rate.
    assert (2 * nic_bps // 8 * delay_us) >> 19 <= 1 << 20
