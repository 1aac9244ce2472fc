"""TCP incast collapse: a timeout of 200 ms costs a small transfer nearly everything, one of 1 ms little."""

from __future__ import annotations

import math

from testbed.record.reader import Record
from testbed.validation.bench import Bench
from testbed.validation.cases import Case
from testbed.validation.rows import Row, at_least, at_most, between
from testbed.validation.scenes import PORT, STAR, last_end_ns, serial_ns

MTU = 1500
RATE_BPS = 1_000_000_000
SENDERS = 32
BLOCK_BYTES = 1 << 20
PIECE_BYTES = BLOCK_BYTES // SENDERS
BUFFER = "64kb"
SETS = [
    *(f"hosts.prefill.count={SENDERS}", f"workload.requests.count={SENDERS}"),
    f"workload.requests.kv_bytes={PIECE_BYTES // 1024}kib",
    *("fabric.host_link={rate: 1gbit, delay: 25us}", f"fabric.mtu={MTU}"),
    f"fabric.queue={{kmin: {BUFFER}, kmax: {BUFFER}, limit: {BUFFER}}}",
    *(
        "transport.congestion_control=reno",
        "transport.ecn=false",
        "measure.interval=100us",
        "measure.progress=1ms",
    ),
]
SMALL = [*SETS]
LARGE = [*SETS, "fabric.queue={kmin: 4mb, kmax: 4mb, limit: 4mb}"]
SOURCE = "Vasudevan and others, SIGCOMM 2009; goodput t / (t + RTO)"


def goodput(record: Record) -> float:
    """Return the block's rate as a share of the link's, in percent."""
    ideal_ns = SENDERS * serial_ns(PIECE_BYTES, MTU, RATE_BPS)
    return 100 * ideal_ns / max(last_end_ns(record), 1)


def bound(rto_ms: float) -> float:
    """Return the goodput, in percent, of a block one of whose pieces waits for one timeout."""
    ideal_ms = SENDERS * serial_ns(PIECE_BYTES, MTU, RATE_BPS) / 1e6
    return 100 * ideal_ms / (ideal_ms + rto_ms)


def collapse(bench: Bench) -> list[Row]:
    """Return the goodput with a long and a short timeout, and with a buffer that holds everything."""
    what = f"goodput of 1 MiB from {SENDERS} senders over 1 Gbit/s, "
    slow = bench.run(STAR, [*SMALL, "transport.rto_min=200ms"])
    fast = bench.run(STAR, [*SMALL, "transport.rto_min=1ms"])
    deep = bench.run(STAR, [*LARGE, "transport.rto_min=200ms"])
    return [
        between(
            "collapse.rto-200ms",
            f"{what}buffer {BUFFER}, RTO_min 200 ms",
            goodput(slow),
            0,
            bound(200),
            "%",
            why="the bound of one timeout; more of them in a row only lower it",
            source=SOURCE,
        ),
        at_least(
            "collapse.rto-1ms",
            f"{what}buffer {BUFFER}, RTO_min 1 ms",
            goodput(fast),
            bound(8),
            "%",
            why="three timeouts in a row, each twice the last: 1 + 2 + 4 ms, and the round trips between",
            source=SOURCE,
        ),
        at_least(
            "collapse.deep",
            f"{what}buffer 4 MB, RTO_min 200 ms",
            goodput(deep),
            95,
            "%",
            why="no loss, no timeout: round trips and slow start are left",
            source="FAST 2008, Phanishayee and others",
        ),
        at_most(
            "collapse.deep-drops",
            "packets dropped with the buffer of 4 MB",
            deep.totals(PORT)["drops"],
            0,
            "",
            why="all senders' pieces fit",
            source="the scenario",
        ),
    ]


def ratio(bench: Bench) -> list[Row]:
    """Return how many times faster the short timeout is."""
    slow = bench.run(STAR, [*SMALL, "transport.rto_min=200ms"])
    fast = bench.run(STAR, [*SMALL, "transport.rto_min=1ms"])
    return [
        between(
            "collapse.ratio",
            "goodput with RTO_min 1 ms over that with 200 ms",
            goodput(fast) / goodput(slow),
            10,
            math.inf,
            "",
            why="up to 90 % of the goodput was lost on hardware",
            source=SOURCE,
        )
    ]


CASES = (
    Case(
        "collapse.goodput",
        "goodput with long and short timeouts",
        lambda bench, _seeds: collapse(bench),
        quick=True,
    ),
    Case("collapse.ratio", "what the short timeout gains", lambda bench, _seeds: ratio(bench), quick=True),
)
