"""Do transfers take the time that arithmetic says?

The tolerance is 2 %: the first round trips before a sender fills its link, a whole packet at each hop, and
what a shaper's whole nanoseconds leave.
"""

from __future__ import annotations

from testbed.validation.bench import Bench
from testbed.validation.cases import Case
from testbed.validation.rows import Row, about
from testbed.validation.scenes import STAR, last_end_ns, serial_ns

MTU = 4200
MIB = 1 << 20
SLOW = "fabric.host_link={rate: 10gbit, delay: 1us}"
RATE_BPS = 10_000_000_000
WHY = "2 %: first round trips, a whole packet at each hop, whole nanoseconds of the shaper"


def _ms(
    name: str, what: str, measured_ns: float, expected_ns: float, source: str, share: float = 0.02
) -> Row:
    return about(
        f"closed_forms.{name}",
        what,
        measured_ns / 1e6,
        expected_ns / 1e6,
        "ms",
        share=share,
        why=WHY,
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
    """Return when two transfers of different size through one port end, shared fairly."""
    flows = _listed("{from: p1, to: d1, bytes: 16mib}", "{from: p2, to: d1, bytes: 32mib}")
    record = bench.valid(STAR, [SLOW, *flows])
    ends = [outcome.end_ns or 0 for outcome in record.outcomes]
    short, long = serial_ns(16 * MIB, MTU, RATE_BPS), serial_ns(32 * MIB, MTU, RATE_BPS)
    return [
        _ms(
            "two-sizes.short",
            "16 of 16 and 32 MiB through one port",
            ends[0],
            2 * short,
            "max-min fair shares",
            0.1,
        ),
        _ms(
            "two-sizes.long",
            "32 of 16 and 32 MiB through one port",
            ends[1],
            short + long,
            "max-min fair shares",
        ),
    ]


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
