"""Do transfers take the time that arithmetic says?

The tolerance is 1 %: the first round trips before a sender fills its link, a whole packet at each hop, and
what a shaper's whole nanoseconds leave. Two DCTCP senders that could each fill a port share it evenly in the
long run only; where the shares are to be exact, a rail or the senders' own NIC sets them.
"""

from __future__ import annotations

from testbed.record.reader import Record
from testbed.validation.bench import Bench
from testbed.validation.cases import Case
from testbed.validation.rows import Row, about
from testbed.validation.scenes import STAR, last_end_ns, serial_ns

MTU = 4200
MIB = 1 << 20
SLOW = "fabric.host_link={rate: 10gbit, delay: 1us}"
RATE_BPS = 10_000_000_000
FAIR = "max-min fair shares"
SHARE = 0.01
WHY = "1 %: first round trips, a whole packet at each hop, whole nanoseconds of the shaper"

UNEVEN = 0.1
"""How unevenly two DCTCP senders may share a port over 16 MiB: see `tests/lab/test_closed_forms.py`."""

SLOW_START = 0.02
"""What DCTCP's first cut, of half a window, may cost a transfer over a slow rail."""


def _ms(
    name: str,
    what: str,
    measured_ns: float,
    expected_ns: float,
    source: str,
    share: float = SHARE,
    why: str = WHY,
) -> Row:
    return about(
        f"closed_forms.{name}",
        what,
        measured_ns / 1e6,
        expected_ns / 1e6,
        "ms",
        share=share,
        why=why,
        source=source,
    )


def _listed(*lines: str) -> list[str]:
    return ["workload.requests=null", f"workload.transfers=[{', '.join(lines)}]"]


def alone(bench: Bench, _seeds: int) -> list[Row]:
    """Return the time of one transfer that has every link for itself."""
    one = ["hosts.prefill.count=1", "workload.requests.count=1", "workload.requests.kv_bytes=8mib"]
    record = bench.valid(STAR, [SLOW, *one])
    expected = serial_ns(8 * MIB, MTU, RATE_BPS) + 2_000
    return [
        _ms(
            "alone",
            "8 MiB alone at 10 Gbit/s",
            last_end_ns(record),
            expected,
            "bytes (1 + headers) / rate + delay",
        )
    ]


def incast(bench: Bench, _seeds: int) -> list[Row]:
    """Return the time of equal transfers through one port."""
    rows = []
    for count in (2, 8):
        sets = [f"hosts.prefill.count={count}", f"workload.requests.count={count}"]
        record = bench.valid(STAR, [SLOW, *sets, "workload.requests.kv_bytes=2mib"])
        expected = count * serial_ns(2 * MIB, MTU, RATE_BPS) + 2_000
        what = f"{count} transfers of 2 MiB into one host at 10 Gbit/s"
        rows.append(_ms(f"incast.{count}", what, last_end_ns(record), expected, "N times one alone"))
    return rows


def stages(bench: Bench, _seeds: int) -> list[Row]:
    """Return the time over a slow rail and a slow landing in a fast fabric."""
    one = ["hosts.prefill.count=1", "workload.requests.count=1", "workload.requests.kv_bytes=4mib"]
    rows = []
    for name, key in (("rail", "hosts.prefill.gpu_to_nic"), ("landing", "hosts.decode.nic_to_gpu")):
        record = bench.valid(STAR, [*one, f"{key}=5gbit"])
        delay_ns = sum(link.delay_ns for link in record.plan.topology.stages) + 2_000
        expected = serial_ns(4 * MIB, MTU, 5e9) + delay_ns
        what = f"4 MiB over a {name} of 5 Gbit/s, links of 100 Gbit/s"
        rows.append(
            _ms(f"stages.{name}", what, last_end_ns(record), expected, "bytes / rate of the slowest stretch")
        )
    return rows


def two_sizes(bench: Bench, _seeds: int) -> list[Row]:
    """Return when two transfers of different size that share a link end."""
    flows = _listed("{from: p1, to: d1, bytes: 16mib}", "{from: p2, to: d1, bytes: 32mib}")
    ends = _ends_ns(bench.valid(STAR, [SLOW, *flows]))
    short, long = serial_ns(16 * MIB, MTU, RATE_BPS), serial_ns(32 * MIB, MTU, RATE_BPS)
    what = "of 16 and 32 MiB through one port"
    uneven = "10 %: how evenly two DCTCP senders share in so short a time"
    return [
        _ms("two-sizes.short", f"16 {what}", ends[0], 2 * short, FAIR, UNEVEN, uneven),
        _ms("two-sizes.long", f"32 {what}", ends[1], short + long, FAIR),
        *_behind_a_rail(bench),
        *_through_one_nic(bench),
    ]


def _behind_a_rail(bench: Bench) -> list[Row]:
    """Two senders of a port, one of which cannot send at its half: the other has all that is left."""
    rail_bps = 2_000_000_000
    flows = _listed("{from: p1, to: d1, bytes: 16mib}", "{from: p2, to: d1, bytes: 96mib}")
    ends = _ends_ns(bench.valid(STAR, [SLOW, "hosts.slow_rails=[{host: p1, rate: 2gbit}]", *flows]))
    short = serial_ns(16 * MIB, MTU, rail_bps)
    left = serial_ns(96 * MIB, MTU, RATE_BPS) - short * (RATE_BPS - rail_bps) / RATE_BPS
    what = "of 16 and 96 MiB through one port, the shorter over a rail of 2 Gbit/s"
    cut = "2 %: DCTCP's first cut halves the window, and may hit the shorter one in its slow start"
    return [
        _ms("two-sizes.rail.short", f"16 {what}", ends[0], short, FAIR, SLOW_START, cut),
        _ms("two-sizes.rail.long", f"96 {what}", ends[1], short + left, FAIR),
    ]


def _through_one_nic(bench: Bench) -> list[Row]:
    """Two GPUs of one host: half of its NIC each, then the longer one's rail is what limits."""
    rail_bps = 8_000_000_000
    gpus = ["hosts.gpus_per_host=2", "hosts.prefill.gpu_to_nic=8gbit"]
    hosts = ["hosts.prefill.count=1", "hosts.decode.count=2"]
    flows = _listed("{from: p1, to: d1, bytes: 4mib}", "{from: p1, to: d2, bytes: 8mib}")
    ends = _ends_ns(bench.valid(STAR, [SLOW, *gpus, *hosts, *flows]))
    short, rest = serial_ns(4 * MIB, MTU, RATE_BPS), serial_ns(4 * MIB, MTU, rail_bps)
    what = "of 4 and 8 MiB of two GPUs, rails of 8 Gbit/s, through their NIC"
    return [
        _ms("two-sizes.nic.short", f"4 {what}", ends[0], 2 * short, FAIR),
        _ms("two-sizes.nic.long", f"8 {what}", ends[1], 2 * short + rest, FAIR),
    ]


def _ends_ns(record: Record) -> list[int]:
    return [outcome.end_ns or 0 for outcome in record.outcomes]


def spine(bench: Bench, _seeds: int) -> list[Row]:
    """Return the time of flows pinned to one spine."""
    count = 4
    pins = ", ".join(f"{{from: p{number}, spine: 1}}" for number in range(1, count + 1))
    sets = [
        *(
            "fabric.leaves=5",
            "fabric.spines=2",
            "fabric.hosts_per_leaf=4",
            "fabric.fabric_link={rate: 10gbit, delay: 1us}",
        ),
        *(f"hosts.prefill.count={count}", f"hosts.decode.count={count}", "hosts.prefill.leaves=[1, 2, 3, 4]"),
        *("hosts.prefill.layout=spread", "hosts.decode.leaves=[5]", "workload.requests.count=4"),
        *("workload.requests.kv_bytes=2mib", f"routing={{policy: pinned, pinned: [{pins}]}}"),
    ]
    record = bench.valid(STAR, [SLOW, *sets])
    expected = count * serial_ns(2 * MIB, MTU, RATE_BPS) + 4_000
    return [
        _ms(
            "spine",
            "four flows on one spine of two, 10 Gbit/s",
            last_end_ns(record),
            expected,
            "n flows: n times one alone",
        )
    ]


CASES = (
    Case("closed_forms.alone", "one transfer alone", alone, quick=True),
    Case("closed_forms.incast", "N to 1", incast, quick=True),
    Case("closed_forms.stages", "a slow rail, a slow landing", stages),
    Case("closed_forms.two-sizes", "max-min fair sharing", two_sizes),
    Case("closed_forms.spine", "a hot spine", spine),
)
