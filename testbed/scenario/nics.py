"""Which GPU and which NIC each transfer uses at its two ends. Pure functions of a scenario.

Called where the topology is chosen, because a GPU that uses a NIC other than its own has a way of its own
there, and where the transfers are planned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.scenario.models import Scenario


@dataclass(frozen=True)
class End:
    """One end of a transfer: GPU and NIC of a host, both counted from 1."""

    host: str
    gpu: int
    nic: int


class Ends:
    """Gives the ends of one transfer after the other. A host's GPUs take their turns, at each end by itself.

    `nic_of_gpu` has the NIC of each GPU.
    """

    def __init__(self, nic_of_gpu: tuple[int, ...]) -> None:
        self._nic_of_gpu = nic_of_gpu
        self._turns: Counter[tuple[str, str]] = Counter()

    def source(self, host: str, gpu: int | None = None, nic: int | None = None) -> End:
        """Return the sending end of the next transfer; what is given is taken."""
        return self._next("source", host, gpu, nic)

    def target(self, host: str, gpu: int | None = None, nic: int | None = None) -> End:
        """Return the receiving end of the next transfer; what is given is taken."""
        return self._next("target", host, gpu, nic)

    def _next(self, side: str, host: str, gpu: int | None, nic: int | None) -> End:
        turn = self._turns[side, host] % len(self._nic_of_gpu) + 1
        self._turns[side, host] += 1
        chosen = gpu or turn
        return End(host, chosen, nic or self._nic_of_gpu[chosen - 1])


def crossings(scenario: Scenario, nic_of_gpu: tuple[int, ...]) -> tuple[tuple[str, int, int], ...]:
    """Return host, GPU and NIC wherever a transfer's GPU uses a NIC that is not its own."""
    found = dict.fromkeys([*_ends(scenario, nic_of_gpu), *_spread(scenario, len(nic_of_gpu))])
    return tuple((end.host, end.gpu, end.nic) for end in found if nic_of_gpu[end.gpu - 1] != end.nic)


def _spread(scenario: Scenario, gpus: int) -> Iterator[End]:
    """Yield every GPU with every NIC where requests are spread over all of them."""
    hosts, workload = scenario.hosts, scenario.workload
    if workload.requests is None or not workload.connector.connector.spread or hosts.nics == 1:
        return
    names = [f"p{number}" for number in range(1, hosts.prefill.count + 1)]
    names += [f"d{number}" for number in range(1, hosts.decode.count + 1)]
    for name in names:
        for gpu in range(1, gpus + 1):
            yield from (End(name, gpu, nic) for nic in range(1, hosts.nics + 1))


def _ends(scenario: Scenario, nic_of_gpu: tuple[int, ...]) -> Iterator[End]:
    if scenario.hosts.nics == 1:
        return
    ends = Ends(nic_of_gpu)
    for item in scenario.workload.transfers:
        if max(item.source_gpu or 1, item.destination_gpu or 1) > len(nic_of_gpu):
            continue  # refused elsewhere
        yield ends.source(item.source, item.source_gpu, item.source_nic)
        yield ends.target(item.destination, item.destination_gpu, item.destination_nic)
