"""Does every link have the rate and the delay that was asked for, each layer, direction and transport?"""

from __future__ import annotations

import numpy as np

from testbed.record.reader import Record
from testbed.validation.bench import Bench
from testbed.validation.cases import Case
from testbed.validation.rows import Row, about
from testbed.validation.scenes import (
    PORT,
    SPEEDS,
    STAR,
    Speed,
    last_end_ns,
    middle,
    sent_bps,
    serial_ns,
)

CONTROLS = ("dctcp", "cubic", "bbr")
ROUNDING = "the kernel counts a frame's time in whole ns, rounded down (0.2 % at 400 Gbit/s); 1 % in all"
CLOSED = "ramp-up of the senders (round trips of 4 us) and a whole packet at each hop"
ASKED = "the scenario"

LAYERS = """\
name: layers
fabric:
  leaves: 4
  spines: 7
  hosts_per_leaf: 8
  host_link: {{rate: {rate}, delay: 1us}}
  fabric_link: {{rate: {rate}, delay: 1us}}
  mtu: {mtu}
  queue: {{kmin: 100kb, kmax: 400kb, pmax: 0.2, limit: 8mb}}
hosts:
  prefill: {{count: 9, leaves: [1, 2]}}
  decode: {{count: 9, leaves: [3, 4]}}
  slow_rails: [{{host: p8, rate: {half}bit}}, {{host: d9, rate: {half}bit}}]
routing: {{policy: pinned, pinned: [{pins}]}}
workload:
  transfers: [{flows}]
measure: {{interval: {interval}, progress: {interval}}}
"""

FLOWS = (
    ("p1", "d1", 1),
    ("p2", "d2", 1),
    ("p3", "d3", 2),
    ("p9", "d4", 2),
    ("p4", "d5", 3),
    ("p5", "d6", 4),
    ("p6", "d6", 5),
    ("p8", "d8", 6),
    ("p7", "d9", 7),
)
"""From, to, and the spine on the way. Each spine serves one purpose, so that nothing else is in the way."""

BOTTLENECKS = (
    ("fabric-up", "leaf1-spine1", (0, 1), 1),
    ("fabric-down", "spine2-leaf3", (2, 3), 1),
    ("host-up", "p4-leaf1", (4,), 1),
    ("host-down", "leaf3-d6", (5, 6), 1),
    ("rail", "p8g1-p8", (7,), 2),
    ("landing", "d9-d9g1", (8,), 2),
)
"""A layer and direction, the link that limits, the flows over it, and by what its rate is divided."""


def _layers_text(speed: Speed) -> str:
    pins = ", ".join(f"{{from: {src}, to: {dst}, spine: {spine}}}" for src, dst, spine in FLOWS)
    size = f"{speed.payload_mib}mib"
    flows = ", ".join(f"{{from: {src}, to: {dst}, bytes: {size}}}" for src, dst, _ in FLOWS)
    half = f"{speed.rate_bps // 2_000_000}m"
    return LAYERS.format(
        rate=speed.name, half=half, mtu=speed.mtu, interval=speed.interval, pins=pins, flows=flows
    )


def layers(bench: Bench, speed: Speed) -> list[Row]:
    """Return a row for each layer and direction: the rate of its link while it is what limits."""
    record = bench.valid(_layers_text(speed))
    return [
        about(
            f"shaping.layers.{speed.name}.{layer}",
            f"rate of a {layer.replace('-', ' ')} link ({link}) while it limits, dctcp",
            sent_bps(record.series(link), *middle(record, flows)) / 1e6,
            speed.rate_bps / part / 1e6,
            "Mbit/s",
            share=0.01,
            why=ROUNDING,
            source=ASKED,
        )
        for layer, link, flows, part in BOTTLENECKS
    ]


def rate(bench: Bench, speed: Speed, control: str) -> list[Row]:
    """Return the rate of a port that two senders fill, and when the last of their bytes arrived."""
    record = bench.valid(STAR, [*speed.sets, f"transport.congestion_control={control}"])
    name = f"shaping.rate.{speed.name}.{control}"
    expected_ns = 2 * serial_ns(speed.payload_bytes, speed.mtu, speed.rate_bps) + 2_000
    return [
        about(
            f"{name}.port",
            f"rate of a port at {speed.name} while two {control} senders fill it",
            sent_bps(record.series(PORT), *middle(record, (0, 1))) / 1e6,
            speed.rate_bps / 1e6,
            "Mbit/s",
            share=0.01,
            why=ROUNDING,
            source=ASKED,
        ),
        about(
            f"{name}.transfer",
            f"when two {control} transfers through one port at {speed.name} have arrived",
            last_end_ns(record) / 1e6,
            expected_ns / 1e6,
            "ms",
            share=0.02,
            why=CLOSED,
            source="bytes x (1 + headers) / rate + delay",
        ),
    ]


# ---- delay ----------------------------------------------------------------------------

DELAYS = (
    ("1us", "1us", 2_000, 4_000),
    ("10us", "50us", 20_000, 120_000),
    ("1ms", "5ms", 2_000_000, 12_000_000),
)
"""Delay of a host link and of a fabric link, and one way through a leaf and across a spine, in ns."""

DELAY_SETS = [
    *("fabric.leaves=2", "hosts.prefill.count=1", "hosts.decode.count=2", "hosts.decode.leaves=[1, 2]"),
    *("hosts.decode.layout=spread", "workload.requests=null"),
    "workload.transfers=[{from: p1, to: d1, bytes: 64kib}, {from: p1, to: d2, bytes: 64kib, start: 50ms}]",
    "measure.departures=[p1-leaf1, leaf1-d1, leaf2-d2, d1-leaf1, d2-leaf2, leaf1-p1]",
]


def delays(bench: Bench) -> list[Row]:
    """Return the time of the first packet each way, within a leaf and across a spine, and the round trip."""
    rows = []
    for host, fabric, near_ns, far_ns in DELAYS:
        record = bench.run(
            STAR, [*DELAY_SETS, f"fabric.host_link.delay={host}", f"fabric.fabric_link.delay={fabric}"]
        )
        for way, leaf, decode, expected_ns in (
            ("leaf", "leaf1", "d1", near_ns),
            ("spine", "leaf2", "d2", far_ns),
        ):
            there = _flight_ns(record, "p1-leaf1", f"{leaf}-{decode}", "p1")
            back = _flight_ns(record, f"{decode}-{leaf}", "leaf1-p1", decode)
            for part, measured, count in (("there", there, 1), ("back", back, 1), ("rtt", there + back, 2)):
                rows.append(
                    about(
                        f"shaping.rtt.{host}-{fabric}.{way}.{part}",
                        f"{_PARTS[part]}, {_WAYS[way]}, links of {host} and {fabric}",
                        measured / 1e3,
                        count * expected_ns / 1e3,
                        "us",
                        share=0.01,
                        floor=0.1 * count,
                        why="timers of the virtual clock come up to 16 ns late at each stage",
                        source=ASKED,
                    )
                )
    return rows


_PARTS = {"there": "a packet's time there", "back": "an answer's time back", "rtt": "both, the round trip"}
_WAYS = {"leaf": "within a leaf", "spine": "across a spine"}


def _flight_ns(record: Record, first: str, last: str, source: str) -> float:
    """Return how long the second packet of host `source` that left `last` took since it left `first`.

    The first one, which opens the connection, takes some 0.1 us more at each switch: Open vSwitch asks its
    user-space part for the way. The other host's second packet is the one that follows it.
    """
    address = _address(record, source)
    left, arrived = record.departures(first), record.departures(last)
    ends = np.flatnonzero(arrived.source == address)
    ends = ends[arrived.sequence[ends] != arrived.sequence[ends[:1]]]
    if not len(ends):
        return float("nan")
    sequence = arrived.sequence[ends[0]]
    starts = np.flatnonzero((left.source == address) & (left.sequence == sequence))
    return float(arrived.time_ns[ends[0]] - left.time_ns[starts[0]]) if len(starts) else float("nan")


def _address(record: Record, host: str) -> int:
    octets = [int(part) for part in record.plan.topology.host(host).ip.split(".")]
    return int.from_bytes(bytes(octets), "big")


CASES = (
    *(
        Case(
            f"shaping.layers.{speed.name}",
            f"rates of all layers, up and down, at {speed.name}",
            lambda bench, _seeds, speed=speed: layers(bench, speed),  # type: ignore[misc]
            quick=speed.name == "100gbit",
        )
        for speed in SPEEDS
    ),
    *(
        Case(
            f"shaping.rate.{speed.name}.{control}",
            f"a port filled by {control} at {speed.name}",
            lambda bench, _seeds, speed=speed, control=control: rate(bench, speed, control),  # type: ignore[misc]
            quick=(speed.name, control) in (("1gbit", "cubic"), ("400gbit", "dctcp")),
        )
        for speed in SPEEDS
        for control in CONTROLS
    ),
    Case("shaping.rtt", "delays, each way", lambda bench, _seeds: delays(bench)),
)
