"""Times that follow from arithmetic alone: shared links, slow rails and landings, hot spines, max-min.

Every tolerance is 1 %. It holds what the arithmetic leaves out: the first round trips before a sender fills
its link (some 10 us here, of 3 ms and more), a whole packet at each hop (3.4 us at 10 Gbit/s), and the
shaper, which counts a packet's time in whole nanoseconds (0.3 % at most). Where two flows share, it holds
beside that how evenly DCTCP shares.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import MIB, ONE_LEAF, Run, call, run, settings, small, wire_bytes, write_scenario

SHARE = 0.01
MTU = 4200
SIZE = 4 * MIB
RATE_BPS = 10_000_000_000
SLOW = "fabric.host_link.rate=10gbit"


def serial_ns(payload_bytes: int, rate_bps: float) -> float:
    """How long a payload's frames take at a rate."""
    return wire_bytes(payload_bytes, MTU) * 8 / rate_bps * 1e9


def transfers(*lines: str) -> list[str]:
    return ["workload.requests=null", f"workload.transfers=[{', '.join(lines)}]"]


def ends_ns(done: Run) -> list[int]:
    ends = [outcome.end_ns for outcome in done.record.outcomes]
    assert None not in ends
    return [end for end in ends if end is not None]


def sound(done: Run) -> Run:
    """The run, once it is known to be valid and without a loss."""
    assert done.summary["fidelity"]["valid"] is True
    assert {outcome.retransmissions for outcome in done.record.outcomes} == {0}
    return done


# ---- one link -------------------------------------------------------------------------


def through_one_link(folder: Path, count: int) -> float:
    folder.mkdir()
    senders = ["fabric.hosts_per_leaf=5", f"hosts.prefill.count={count}"]
    requests = [f"workload.requests.count={count}", "workload.requests.kv_bytes=4mib"]
    done = small(folder, *ONE_LEAF, SLOW, *senders, *requests)
    return sound(done).last_end_ns()


@pytest.fixture(scope="module")
def alone_ns(tmp_path_factory: pytest.TempPathFactory) -> float:
    return through_one_link(tmp_path_factory.mktemp("alone") / "run", 1)


def test_a_flow_alone_takes_its_bytes_over_the_rate(alone_ns: float) -> None:
    assert alone_ns == pytest.approx(serial_ns(SIZE, RATE_BPS) + 2_000, rel=SHARE)


@pytest.mark.parametrize("count", [2, 4])
def test_equal_flows_through_one_link_end_at_their_number_times_one_alone(
    tmp_path: Path, alone_ns: float, count: int
) -> None:
    assert through_one_link(tmp_path / "run", count) == pytest.approx(count * alone_ns, rel=SHARE)


DCTCP_SHARE = 0.1
"""How unevenly two DCTCP flows may share over the 16 MiB of the shorter one: in eleven runs with other packet
sizes, markings and seeds three were 8.0, 4.6 and 3.0 % off, the others within 2.5 %."""


def test_two_flows_of_different_size_share_a_port_as_max_min_says(tmp_path: Path) -> None:
    short, long = 16 * MIB, 32 * MIB
    listed = transfers("{from: p1, to: d1, bytes: 16mib}", "{from: p2, to: d1, bytes: 32mib}")
    done = sound(small(tmp_path, *ONE_LEAF, SLOW, *listed))
    # Both at r/2 until the shorter one has ended; the longer one has sent as much by then, and r is its own.
    first, second = 2 * serial_ns(short, RATE_BPS), serial_ns(short, RATE_BPS) + serial_ns(long, RATE_BPS)
    ends = ends_ns(done)
    assert ends[0] == pytest.approx(first + 2_000, rel=DCTCP_SHARE)
    assert ends[1] == pytest.approx(second + 2_000, rel=SHARE)


def test_a_flow_behind_a_slow_rail_leaves_the_rest_of_the_port_as_max_min_says(tmp_path: Path) -> None:
    # 2 Gbit/s for the one behind the rail, 8 for the other until the shorter one has ended, then all 10.
    listed = transfers("{from: p1, to: d1, bytes: 16mib}", "{from: p2, to: d1, bytes: 96mib}")
    done = sound(small(tmp_path, *ONE_LEAF, SLOW, "hosts.slow_rails=[{host: p1, rate: 2gbit}]", *listed))
    first = serial_ns(16 * MIB, 2e9)
    second = first + serial_ns(96 * MIB, RATE_BPS) - 0.8 * first
    shorter, longer = ends_ns(done)
    # DCTCP's first cut halves a window, and may hit the shorter one in its slow start.
    assert shorter == pytest.approx(first + 2_000, rel=2 * SHARE)
    assert longer == pytest.approx(second + 2_000, rel=SHARE)


@pytest.fixture(scope="module")
def one_nic(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two GPUs of one host, each with a rail of 8 Gbit/s, send 4 and 8 MiB through its NIC of 10 Gbit/s."""
    folder = tmp_path_factory.mktemp("one-nic")
    gpus = ["hosts.gpus_per_host=2", "hosts.prefill.gpu_to_nic=8gbit"]
    hosts = ["hosts.prefill.count=1", "hosts.decode.count=2"]
    listed = transfers("{from: p1, to: d1, bytes: 4mib}", "{from: p1, to: d2, bytes: 8mib}")
    sets = settings([*ONE_LEAF, SLOW, *gpus, *hosts, *listed])
    out = folder / "record"
    return Run(call("run", write_scenario(folder), "--out", out, *sets), out)


def test_two_gpus_share_their_nic_as_max_min_says(one_nic: Run) -> None:
    # Half of the NIC each; when the shorter one has ended, the other sends its second half at 8 Gbit/s.
    first = 2 * serial_ns(SIZE, RATE_BPS)
    second = first + serial_ns(2 * SIZE, 8e9) - serial_ns(SIZE, 8e9)
    assert ends_ns(one_nic) == pytest.approx([first + 2_000, second + 2_000], rel=SHARE)


def test_gpus_that_wait_for_their_nic_are_no_fault_of_the_measurement(one_nic: Run) -> None:
    assert one_nic.summary["fidelity"]["reasons"] == []
    assert one_nic.done.returncode == 0
    assert one_nic.summary["verdict"]["link"] == "p1-leaf1"


# ---- inside hosts ---------------------------------------------------------------------

FABRICS = {
    "fast": ["fabric.host_link.rate=100gbit", "fabric.fabric_link.rate=400gbit"],
    "oversubscribed": ["fabric.host_link.rate=25gbit", "fabric.fabric_link.rate=10gbit"],
    "far": ["fabric.host_link.delay=2us", "fabric.fabric_link.delay=10us"],
}
DELAYS_NS = {"fast": 4_000, "oversubscribed": 4_000, "far": 24_000}


@pytest.mark.parametrize(
    ("fabric", "stage"),
    [("fast", "rail"), ("fast", "landing"), ("oversubscribed", "landing"), ("far", "rail")],
)
def test_a_rail_or_landing_gives_bytes_over_its_rate_whatever_the_fabric(
    tmp_path: Path, fabric: str, stage: str
) -> None:
    key = {"rail": "hosts.prefill.gpu_to_nic", "landing": "hosts.decode.nic_to_gpu"}[stage]
    listed = transfers("{from: p1, to: d1, bytes: 4mib}")
    done = sound(small(tmp_path, *FABRICS[fabric], "hosts.prefill.count=1", f"{key}=5gbit", *listed))
    expected = serial_ns(SIZE, 5e9) + DELAYS_NS[fabric]
    assert done.last_end_ns() == pytest.approx(expected, rel=SHARE)
    segment = {"rail": "source-rail", "landing": "dest-landing"}[stage]
    assert done.summary["verdict"]["segment"] == segment


HOST_BOUNCE_BPS = 133_600_000_000
TWO_GPUS = {
    "rail": [
        *("hosts.prefill.gpu_to_nic=host-bounce", "hosts.prefill.latency=0us", "hosts.prefill.count=1"),
        "hosts.decode.count=2",
        *transfers("{from: p1, to: d1, bytes: 16mib}", "{from: p1, to: d2, bytes: 16mib}"),
    ],
    "landing": [
        # A buffer for both windows: nothing is lost in it.
        *("hosts.decode.nic_to_gpu=host-bounce", "hosts.decode.latency=0us", "hosts.decode.buffer=64mb"),
        "hosts.prefill.count=2",
        *transfers("{from: p1, to: d1, bytes: 16mib}", "{from: p2, to: d1, bytes: 16mib}"),
    ],
}


@pytest.mark.parametrize("stage", TWO_GPUS)
def test_what_two_gpus_share_they_have_together(tmp_path: Path, stage: str) -> None:
    fast = ["fabric.host_link.rate=400gbit", "hosts.gpus_per_host=2"]
    done = small(tmp_path, *ONE_LEAF, *fast, *TWO_GPUS[stage])
    gpus = {"rail": "src_gpu", "landing": "dst_gpu"}[stage]
    assert [getattr(transfer, gpus) for transfer in done.record.plan.transfers] == [1, 2]
    expected = 2 * serial_ns(16 * MIB, HOST_BOUNCE_BPS) + 2_000
    assert sound(done).last_end_ns() == pytest.approx(expected, rel=SHARE)


# ---- one spine ------------------------------------------------------------------------

HOT = """\
name: hot
fabric:
  leaves: {leaves}
  spines: 2
  hosts_per_leaf: {count}
  host_link: {{rate: 10gbit, delay: 1us}}
  fabric_link: {{rate: 10gbit, delay: 1us}}
hosts:
  prefill: {{count: {count}, layout: spread}}
  decode: {{count: {count}, leaves: [{leaves}]}}
routing: {{policy: pinned, pinned: [{pinned}]}}
workload: {{requests: {{count: {count}, kv_bytes: 4mib}}}}
"""


@pytest.mark.parametrize("count", [2, 4])
def test_flows_pinned_to_one_spine_take_their_number_times_as_long(tmp_path: Path, count: int) -> None:
    leaves = count + 1
    pinned = ", ".join(f"{{from: p{number}, spine: 1}}" for number in range(1, count + 1))
    text = HOT.format(leaves=leaves, count=count, pinned=pinned)
    text = text.replace("layout: spread", f"layout: spread, leaves: {list(range(1, leaves))}")
    done = sound(run(tmp_path / "record", write_scenario(tmp_path, text)))
    assert {path.split()[2] for path in done.paths} == {f"spine1-leaf{leaves}"}
    expected = count * serial_ns(SIZE, RATE_BPS) + 4_000
    assert done.last_end_ns() == pytest.approx(expected, rel=SHARE)
    assert done.summary["verdict"]["link"] == f"spine1-leaf{leaves}"
