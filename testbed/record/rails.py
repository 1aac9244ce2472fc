"""Whose backlog it is: a NIC's, or that of the rails before it. Pure.

In the lab the rails of a prefill host stand below its NIC's rate class, so a packet waits in its rail's
queue for both. Where the NIC sends at its full rate, what waits does so for the NIC; where it does not,
for the rails. Called by the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.record.pauses import Spans
from topologies.model import SOURCE_RAIL, Link, Topology

Ints = NDArray[np.int64]

FULL_SHARE = 0.98
"""From this share of its rate on a NIC counts as full, over one interval between samples."""


def nic_and_rails(topology: Topology, link: str) -> tuple[Link | None, tuple[Link, ...]]:
    """Return the NIC's link and the rails to it, of which `link` is one; None and none for other links."""
    own = topology.link(link)
    if own.segment != SOURCE_RAIL:
        return None, ()
    nic = own.dst if own.dst in topology.nics else own.src
    rails = tuple(stage for stage in topology.stages_at.get(nic, ()) if stage.segment == SOURCE_RAIL)
    return (topology.link(topology.nics[nic].up), rails) if rails else (None, ())


def sends_at_its_rate(nic: Link, time_ns: Ints, sent_bytes: Ints, held: Spans | None = None) -> NDArray[Any]:
    """Tell for each sample whether the NIC was full since the one before; False for the first.

    A NIC that a pause holds (`held`) is full, whatever it sends.
    """
    free_ns = np.diff(time_ns) - (0 if held is None else held.within_ns(time_ns[:-1], time_ns[1:]))
    sent = np.diff(sent_bytes) * 8e9
    full = sent >= FULL_SHARE * nic.rate_bps * free_ns
    return np.concatenate([[False], full])[: len(time_ns)]


def own_backlog(is_nic: bool, full: NDArray[Any], backlog: Ints, rails: Sequence[Ints]) -> Ints:
    """Return the backlog that is a link's own: all of it, or none, by whether the NIC was full.

    `backlog` is what was sampled at the link (at a NIC with all of its rails), `rails` that of each rail.
    """
    if not is_nic:
        return np.where(full, 0, backlog)
    waiting = np.sum(rails, axis=0) if rails else np.zeros_like(backlog)
    return np.where(full, backlog, backlog - waiting)
