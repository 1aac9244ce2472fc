"""Presets for the path between a GPU's memory and its NIC, each with its numbers and their sources.

A preset is what a scenario names as `gpu_to_nic` or `nic_to_gpu`. This module is a table and some
arithmetic: the scenario reads a preset by its name, and whether a stage is built from it is decided
where the topology is. `page` is docs/rails.md, and a test compares the two:
`python -c "from testbed.scenario.rails import page; print(page(), end='')" > docs/rails.md`.

Where sources disagree the slower comparable figure is taken. Rates count the payload of PCIe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from testbed import units


@dataclass(frozen=True)
class RailPreset:
    """One way between a GPU's memory and the NIC, the same in both directions.

    `rate_bps` is in bits per second of payload, `latency_ns` the nanoseconds it adds to each packet.
    Where `shared`, the rate is that of all GPUs of a socket together, otherwise of each GPU. `meaning` is
    one phrase, `source` says where both numbers come from.
    """

    name: str
    rate_bps: int
    latency_ns: int
    shared: bool
    meaning: str
    source: str


TRANSFERS_PER_S: Mapping[int, int] = MappingProxyType({3: 8 * 10**9, 4: 16 * 10**9, 5: 32 * 10**9})
"""Raw bits per second of one lane by PCIe generation (pcie-bench/pcie-model, model/pcie.py)."""

PAYLOAD_BYTES = 256
"""Maximum payload of a transaction layer packet; 128, 256 or 512 in practice, the same on the whole path."""

OVERHEAD_BYTES = 28
"""What a packet carries besides: framing, sequence and LCRC 8, header with a 64-bit address 16, ECRC 4.

The sum is that of pcie-bench/pcie-model, model/pcie.py (24 without ECRC). Intel's application note 708
gives 20 to 28. The largest is taken, which leaves some room for what is not counted: acknowledgements
and flow control.
"""


def pcie_rate_bps(generation: int, lanes: int) -> int:
    """Return the payload rate of a PCIe link in one direction, in bits per second.

    Raw rate x lanes x 128/130 (encoding) x 256/(256 + 28) (packets), rounded down to whole Mbit/s.
    KeyError for a generation other than 3, 4 and 5: later ones pack their data differently.
    """
    raw_bps = TRANSFERS_PER_S[generation] * lanes
    payload_bps = raw_bps * 128 * PAYLOAD_BYTES // (130 * (PAYLOAD_BYTES + OVERHEAD_BYTES))
    return payload_bps // 10**6 * 10**6


def effective_rate_bps(rate_bps: int, block_bytes: int, block_cost_ns: int) -> int:
    """Return the rate at which blocks of KV land, in bits per second, rounded down.

    A block is placed after it has arrived, and the placement of one block does not overlap the arrival of
    the next: each takes bytes/rate + cost. ValueError where the rate or the block is not positive or the
    cost is negative.
    """
    if rate_bps <= 0 or block_bytes <= 0 or block_cost_ns < 0:
        raise ValueError("needs a positive rate, a positive block and a cost that is not negative")
    # bits / (bits/rate + cost), multiplied by rate * 10^9 above and below: whole numbers, exact.
    bits_e9 = block_bytes * 8 * 10**9
    return bits_e9 * rate_bps // (bits_e9 + block_cost_ns * rate_bps)


SWITCH_NS = 115
"""A packet through one PCIe switch: Broadcom's PEX89000 (addresses in `_SWITCH_LATENCY`)."""

READ_NS = 2 * SWITCH_NS
"""A NIC reads a GPU's memory: the request goes through the switch, then the data."""

MESH_NS = 1000
"""What leaving the switch for another root port of the same socket adds to a read (see `_DEEP_DIVE`)."""

SOCKET_NS = 200
"""What one step further away adds in UCX's model of distances (see `_UCX_DISTANCES`)."""

COPY_NS = 7000
"""Start of one copy between GPU and host memory: "6-7us" (see `_COPY`)."""

_DEEP_DIVE = "tlrmchlsmth/j-llm-d, glm-disagg-pcie/nixl-iio-investigation/nixl-pcie-investigation-blog.md"
_P2P = "voipmonitor/rtx6kpro, hardware/pcie-bandwidth.md"
_NCCL = "NVIDIA/nccl, src/graph/topo.h"
_UCX_DISTANCES = "openucx/ucx, src/ucs/sys/topo/base/topo.c of 2022"
_COPY = "NVIDIA/gdrcopy, README.md"
_V100 = (
    "https://stackru.com/questions/59277346/"
    "pochemu-nvidia-gpudirect-rdma-medlennee-pri-otpravke-dannyih-s-graficheskogo-pro"
)
_INTEL_708 = (
    "https://www.intel.com/content/www/us/en/docs/programmable/683390/quartus-prime-pro-v17-0-arria-10/"
    "understanding-pci-express-throughput.html"
)
_SWITCH_LATENCY = "https://www.highpoint-tech.com/post/the-latency-war and https://probsee.com/p/PEX89144"

_SWITCH_SOURCE = (
    f"Latency: a read crosses the switch twice (request, data), 2 x {SWITCH_NS} ns ({_SWITCH_LATENCY});"
    " a write crosses it once and is given the same. What the GPU's memory itself needs is not in it."
)

_SAME_SWITCH = RailPreset(
    "gdr-same-switch",
    pcie_rate_bps(5, 16),
    READ_NS,
    False,
    "GPUDirect RDMA through PCIe switches only, PCIe 5.0 x16 (PIX or PXB in nvidia-smi topo -m)",
    "Rate: computed like `pcie-gen5-x16`. Measured between GPUs: 53 to 56.6 GB/s, that is 424 to 453 Gbit/s"
    f" ({_P2P}); between GPU and a NIC of 400 Gbit/s: 359 Gbit/s, that NIC's own limit ({_DEEP_DIVE})."
    f" {_SWITCH_SOURCE}",
)

_SAME_NUMA = RailPreset(
    "gdr-same-numa",
    266 * 10**9,
    READ_NS + MESH_NS,
    False,
    "GPUDirect RDMA through the root complex of one socket, PCIe 5.0 x16 (PHB or NODE in nvidia-smi topo -m)",
    "Rate: Xeon 8480+, MI300X and ConnectX-7 saturate at 266 to 272 Gbit/s, reading from a GPU and writing"
    f" blocks of 16 KB into one; writes of 2 MB reach 359 ({_DEEP_DIVE}). Sources disagree: NCCL counts 6/5"
    f" of the bytes where packets between devices pass an Intel CPU ({_NCCL}), which would leave 378; AMD"
    f" Turin passes 53 to 56 GB/s between GPUs ({_P2P}), while a V100 under EPYC 7452 receives 14.3 GB/s from"
    f" the NIC and sends 6.1 ({_V100}). In https://github.com/kvcache-ai/Mooncake/issues/813 one NIC behind"
    " the GPU's switch moves 42 GB/s, and four, of which three are elsewhere on the node, 30 together."
    f" Latency: that of gdr-same-switch and the {MESH_NS} ns by which a read of 16 KB across root ports is"
    f" slower (10.71 to 9.71 us; {_DEEP_DIVE}).",
)

_OTHER_NUMA = RailPreset(
    "gdr-other-numa",
    123 * 10**9,
    READ_NS + MESH_NS + SOCKET_NS,
    True,
    "GPUDirect RDMA across the socket interconnect (UPI, Infinity Fabric), which all GPUs that cross it share"
    " (SYS in nvidia-smi topo -m)",
    "Rate: Xeon 8480+, two GPUs read through one NIC of the other socket: 123 Gbit/s together, and 124 with"
    f" two NICs ({_DEEP_DIVE}: its README says total, its table per NIC). Sources disagree, with the CPU:"
    " an A30 moves 11 GB/s where host memory moves 23 (https://github.com/linux-rdma/perftest/issues/241);"
    " NCCL counts one shared link of 22 GB/s for Intel's SRP, 40 for ERP, 24 for AMD's Zen 3 and 4, 32 for"
    f" Zen 5 ({_NCCL}); one pair of GPUs reaches 39 GB/s on EPYC 9374F and 51 on Turin, many pairs saturate"
    f" it ({_P2P})."
    f" Latency: no public figure found for a NIC; chosen so that it exceeds gdr-same-numa by {SOCKET_NS} ns,"
    f" UCX's step from 300 to 500 ns for devices without a common root ({_UCX_DISTANCES}).",
)

_HOST_BOUNCE = RailPreset(
    "host-bounce",
    133_600_000_000,
    COPY_NS,
    True,
    "GPUDirect off: each byte is copied through host memory, which all GPUs of the socket share",
    "Rate: DGX-A100 (PCIe 4.0, 200 Gbit/s), GPUDirect off: at most 16.7 GB/s from GPU to GPU, where copies"
    " and network reach 24 GB/s each (https://github.com/openucx/ucx/issues/6206). On NICs of 100 Gbit/s 65"
    " instead of 85 Gbit/s (https://github.com/openucx/ucx/issues/11121) and 6 GB/s"
    " (https://github.com/NVIDIA/nccl/issues/465). No public figure found for PCIe 5.0, nor for several GPUs"
    " at once; chosen so that all GPUs of a socket share what one pair reached."
    " That a detour through memory can beat gdr-other-numa is no slip: NCCL's authors avoid GPUDirect across"
    ' CPUs, which "are very, very bad PCI switches" (the same NCCL thread).'
    f' Latency: "cudaMemcpy can incur in a 6-7us overhead" ({_COPY}), the larger; two copies are then the'
    f" 14 us measured between GPUs without peer-to-peer ({_P2P}). Filling the first buffer is not in it: the"
    " lab's latency lies within the transport's round trip, that filling does not.",
)


def _pcie(generation: int, lanes: int) -> RailPreset:
    """Return the preset of a link of this width."""
    return RailPreset(
        f"pcie-gen{generation}-x{lanes}",
        pcie_rate_bps(generation, lanes),
        READ_NS,
        False,
        f"GPUDirect RDMA through a shared switch, the narrowest link PCIe {generation}.0 x{lanes}",
        f"Rate: computed, {TRANSFERS_PER_S[generation] // 10**9} GT/s x {lanes} x 128/130 x {PAYLOAD_BYTES}/"
        f"{PAYLOAD_BYTES + OVERHEAD_BYTES}. Latency: as gdr-same-switch.",
    )


def _named(presets: Iterable[RailPreset]) -> Mapping[str, RailPreset]:
    return MappingProxyType({preset.name: preset for preset in presets})


PRESETS: Mapping[str, RailPreset] = _named(
    (_SAME_SWITCH, _SAME_NUMA, _OTHER_NUMA, _HOST_BOUNCE)
    + tuple(_pcie(generation, lanes) for generation in TRANSFERS_PER_S for lanes in (8, 16))
)
"""All presets by name: the ways through a host, then PCIe by generation and lanes."""

_HEAD = """\
# The path inside a host

Generated from `testbed/scenario/rails.py`, which says how; change that instead.

`gpu_to_nic` of prefill hosts and `nic_to_gpu` of decode hosts name how a GPU's memory reaches the NIC, and
back. `nvidia-smi topo -m` on your host shows which row you have: PIX and PXB, PHB and NODE, or SYS between
GPU and NIC; without GPUDirect it is `host-bounce` whatever it shows. A path that is slower than the NIC
becomes a queue of its own, one for each GPU, or one for all of them where it is shared. At a decode host the
placement of blocks comes on top: a block that needs 8 us to arrive and 2 us to be placed lands at 8/10 of
the rate, because one block is placed before the next one arrives.

A host with several NICs has its GPUs' own NICs by `hosts.affinity`. Where a transfer names another
(`from_nic`, `to_nic`), the way is `gpu_to_far_nic` or `nic_to_far_gpu`, `gdr-other-numa` unless it is given,
with a queue beside the other NIC's own.

The computed rates are upper limits of a link, the others are what somebody measured on one platform, and
yours may differ by a factor of two, most of all across sockets. Where sources disagree the slower
comparable figure is taken, so a verdict against a stretch inside a host rests on a preset that may be too
slow for your hosts. When it matters, measure (`ib_read_bw` and `ib_write_bw` with `--use_cuda`, from
GPU to GPU) and write the rate instead of a name, as in `gpu_to_nic: 312gbit`. A preset has one rate for
both directions, although writing into a GPU can be faster than reading from it.

| preset | rate | latency | shared | meaning |
|---|---|---|---|---|
"""

_FORMULA = f"""
## Where the numbers come from

A source is a repository on GitHub with the file's path, or an address. 1 GB/s is 8 Gbit/s.

The rate of a PCIe link is GT/s x lanes x 128/130 x {PAYLOAD_BYTES}/({PAYLOAD_BYTES} + {OVERHEAD_BYTES}).
128 of 130 bits carry data. A packet with {PAYLOAD_BYTES} B of payload has {OVERHEAD_BYTES} B more,
framing, header and checksums:

* pcie-bench/pcie-model, model/pcie.py: 8 B, a header of 16 B, and 4 B where ECRC is on
* Intel's application note 708: 20 to 28 B without ECRC ({_INTEL_708})

That model also takes off 10 % for acknowledgements and flow control at their recommended rates. It is left
out, because measurements are as high as the formula without it: 56.6 GB/s on PCIe 5.0 x16 ({_P2P}),
computed 56.8; 14.3 GB/s on PCIe 3.0 x16 ({_V100}), computed 14.2.

"""


def page() -> str:
    """Return the whole document."""
    rows = "".join(_row(preset) for preset in PRESETS.values())
    sources = "".join(f"* `{preset.name}`: {preset.source}\n" for preset in PRESETS.values())
    return _HEAD + rows + _FORMULA + sources


def _row(preset: RailPreset) -> str:
    rate, latency = units.format_rate(preset.rate_bps), units.format_duration(preset.latency_ns)
    shared = "by the socket's GPUs" if preset.shared else "no"
    return f"| `{preset.name}` | {rate} | {latency} | {shared} | {preset.meaning} |\n"
