"""iperf3 flows beside the transfers, started at their planned moments inside their hosts.

A flow with a rate is paced by the kernel (`--fq-rate`) where it is TCP and by iperf3 itself where it
is UDP. iperf3 knows whole seconds only: a flow of another duration is interrupted at its end, and its
report says so (`error`) beside its figures. Each flow's own JSON report goes into the record.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from testbed.errors import LabError
from testbed.lab.hosts import device_to_bind
from testbed.lab.system import wait_until
from testbed.plan.model import BackgroundFlow, Plan
from traffic.exact_time import exact_timers, sleep_until_ns

LISTEN_TIMEOUT_S = 10
SECOND_NS = 1_000_000_000


def server_command(flow: BackgroundFlow, device: str = "") -> list[str]:
    """Return the command of a flow's receiver, bound to a device if one is given."""
    command = ["ip", "netns", "exec", flow.dst, "iperf3", "-s", "-1", "-p", str(flow.port), "--forceflush"]
    return command + _bound(device)


def client_command(
    flow: BackgroundFlow, address: str, congestion_control: str, device: str = ""
) -> list[str]:
    """Return the command of a flow's sender, bound to a device if one is given.

    Raises ValueError for an unknown protocol.
    """
    command = ["ip", "netns", "exec", flow.src, "iperf3", "-c", address, "-p", str(flow.port), "-J"]
    command += _bound(device)
    command += ["-t", str(-(-flow.duration_ns // SECOND_NS))]
    if flow.protocol == "tcp":
        command += ["-C", congestion_control]
        return command + (["--fq-rate", str(flow.rate_bps)] if flow.rate_bps else [])
    if flow.protocol == "udp":
        return [*command, "-u", "-b", str(flow.rate_bps), "--pacing-timer", "20"]
    raise ValueError(f"iperf3 has no protocol {flow.protocol!r}")


def _bound(device: str) -> list[str]:
    return ["--bind-dev", device] if device else []


def timeline(flows: Sequence[BackgroundFlow]) -> list[tuple[int, int, bool]]:
    """Return in order (ns since the epoch, index of the flow, True to start and False to interrupt it).

    A flow of whole seconds ends by itself.
    """
    moments = [(flow.start_ns, number, True) for number, flow in enumerate(flows)]
    moments += [
        (flow.start_ns + flow.duration_ns, number, False)
        for number, flow in enumerate(flows)
        if flow.duration_ns % SECOND_NS
    ]
    return sorted(moments)


@dataclass
class _Running:
    flow: BackgroundFlow
    server: subprocess.Popen[bytes]
    client: subprocess.Popen[bytes] | None = None


class Background:
    """All background flows of a run, driven from a process of their own."""

    def __init__(self, plan: Plan, work_dir: Path) -> None:
        self._plan = plan
        self._work_dir = work_dir
        self._flows = sorted(plan.background, key=lambda flow: (flow.start_ns, flow.id))
        self._running: list[_Running] = []

    def prepare(self) -> None:
        """Start every receiver and wait until it listens."""
        for flow in self._flows:
            log = self._work_dir / f"iperf3-server-{flow.id}.log"
            with log.open("wb") as output:
                server = subprocess.Popen(
                    server_command(flow, self._device(flow.dst, flow.dst_nic)),
                    stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                )  # fmt: skip
            self._running.append(_Running(flow, server))
            wait_until(partial(_listens, log), LISTEN_TIMEOUT_S, f"iperf3 on {flow.dst}")

    def run(self, epoch_ns: int) -> None:
        """Start each sender at its moment, end it at its own, and wait for all of them."""
        exact_timers()
        for moment_ns, number, starts in timeline([running.flow for running in self._running]):
            running = self._running[number]
            sleep_until_ns(epoch_ns + moment_ns)
            if starts:
                running.client = self._start_client(running.flow)
            elif running.client is not None:
                running.client.send_signal(signal.SIGINT)
        for running in self._running:
            assert running.client is not None
            running.client.wait()

    def _start_client(self, flow: BackgroundFlow) -> subprocess.Popen[bytes]:
        address = self._plan.topology.host(flow.dst).nic(flow.dst_nic).ip
        control, device = self._plan.transport.tcp_congestion_control, self._device(flow.src, flow.src_nic)
        command = client_command(flow, address, control, device)
        with self._report(flow).open("wb") as output:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def _device(self, host: str, nic: int) -> str:
        return device_to_bind(self._plan.topology.host(host), nic)

    def _report(self, flow: BackgroundFlow) -> Path:
        return self._work_dir / f"iperf3-{flow.id}.json"

    def reports(self) -> list[dict[str, Any]]:
        """Return each flow's id and what iperf3 reported. Raises LabError when a report is not JSON."""
        return [{"id": flow.id, "iperf3": self._read(flow)} for flow in self._flows]

    def _read(self, flow: BackgroundFlow) -> Any:
        text = self._report(flow).read_text() if self._report(flow).exists() else ""
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            said = f"reported no JSON: {text[:200]!r}"
            raise LabError(f"iperf3 from {flow.src} to {flow.dst} {said}") from error


def _listens(log: Path) -> bool:
    return "listening" in log.read_text()
