"""The transfers of a request that the serving engine has placed: streams, hops, ports, GPUs. Light to import.

The same for the plan's preview and in the lab, where hosts and bytes are decided while it runs. Called by
`testbed.plan.serving` and `testbed.run.serving`.
"""

from __future__ import annotations

from collections import Counter

from testbed.plan.model import SERVED_PORT_FIRST, TRANSFER_PORT, Plan, Transfer
from traffic.jobs import Serving
from traffic.serving import Course

OTHER_FILES = 256
"""Descriptors that a program of the run needs beside those of transfers and queues."""


def hops_of(serving: Serving) -> int:
    """Return how many transfers follow one another from the prefill to the decode host."""
    return 2 if serving.handover.store else 1


def flows_per_request(serving: Serving) -> int:
    """Return how many transfers a request has at most."""
    return serving.handover.streams * hops_of(serving)


def most_transfers(plan: Plan) -> int:
    """Return how many transfers there are at most: fewer where a prefix cache has something."""
    return most_served(plan.serving) if plan.serving else len(plan.transfers)


def most_served(serving: Serving) -> int:
    """Return how many transfers a serving system makes if nothing is found in a prefix cache."""
    return len(serving.jobs) * flows_per_request(serving)


def open_files(plan: Plan) -> int:
    """Return how many descriptors a program of the run may have.

    A transfer has two sockets, what watches or moves a queue one in its namespace.
    """
    topology = plan.topology
    queues = 2 * len(topology.nics) + len(topology.stages) + len(topology.hosts)
    return OTHER_FILES + 2 * most_transfers(plan) + queues


def receivers(plan: Plan) -> tuple[str, ...]:
    """Return the hosts at which transfers may end, in the order of their names."""
    if plan.serving is None:
        return tuple(sorted({transfer.dst for transfer in plan.transfers}))
    return tuple(sorted({*plan.serving.decode_hosts, *plan.serving.store_hosts}))


def landings(plan: Plan, host: str, nic: int) -> list[tuple[int, int]]:
    """Return port and GPU of each place at `host` where transfers over one of its NICs may end."""
    if plan.serving is None:
        arriving = [t for t in plan.transfers if (t.dst, t.dst_nic) == (host, nic)]
        return sorted({(transfer.dst_port, transfer.dst_gpu) for transfer in arriving})
    owners = plan.serving.nic_of_gpu if host in receivers(plan) else ()
    spread = plan.serving.handover.nics > 1
    return [(TRANSFER_PORT + gpu - 1, gpu) for gpu, own in enumerate(owners, 1) if spread or own == nic]


def transfer_of_port(port: int) -> int | None:
    """Return the transfer whose sender has a port, where the serving engine makes them."""
    return port - SERVED_PORT_FIRST if port >= SERVED_PORT_FIRST else None


class TransferMaker:
    """Makes the transfers of one request after the other; the GPUs of a host take turns."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._sent: Counter[str] = Counter()
        self._received: Counter[str] = Counter()

    def transfers(self, course: Course) -> list[Transfer]:
        """Return a request's transfers, hop after hop of each stream; `wire_bytes` and `ideal_ns` are 0.

        The bytes are dealt to the streams as evenly as whole bytes can be; a stream without any has none.
        Where streams share descriptors, what each really moves turns out in the lab.
        """
        streams = self._serving.handover.streams
        small, larger = divmod(course.bytes, streams)
        stops = [course.prefill_host, *([course.store_host] if course.store_host else []), course.decode_host]
        made = [
            self._transfer(course, stream * (len(stops) - 1) + hop, stops[hop : hop + 2], size, stream)
            for stream in range(streams)
            if (size := small + (stream < larger))
            for hop in range(len(stops) - 1)
        ]
        for host in stops[:-1]:
            self._sent[host] += streams // self._serving.handover.nics
        for host in stops[1:]:
            self._received[host] += streams // self._serving.handover.nics
        return made

    def _transfer(self, course: Course, position: int, ends: list[str], size: int, stream: int) -> Transfer:
        number = course.job.id * flows_per_request(self._serving) + position
        src, dst = ends
        nic_of_gpu = self._serving.nic_of_gpu
        pair, nics = stream // self._serving.handover.nics, self._serving.handover.nics
        src_gpu = (self._sent[src] + pair) % len(nic_of_gpu) + 1
        dst_gpu = (self._received[dst] + pair) % len(nic_of_gpu) + 1
        nic = stream % nics + 1 if nics > 1 else 0
        return Transfer(
            id=number,
            src=src,
            dst=dst,
            bytes=size,
            wire_bytes=0,
            start_ns=course.prefill_end_ns or 0,
            src_port=SERVED_PORT_FIRST + number,
            dst_port=TRANSFER_PORT + dst_gpu - 1,
            ideal_ns=0,
            pace_bps=self._serving.handover.pace_bps,
            src_gpu=src_gpu,
            dst_gpu=dst_gpu,
            src_nic=nic or nic_of_gpu[src_gpu - 1],
            dst_nic=nic or nic_of_gpu[dst_gpu - 1],
            request=course.job.id,
        )
