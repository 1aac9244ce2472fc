"""Pure descriptions of fabrics: who is connected to whom, and under which names and addresses.

Imports nothing of the rest of the project and touches no network; `testbed.plan` turns a topology
into a plan and `testbed.lab` brings that up.
"""

from topologies.leaf_spine import LeafSpine, Slower, Stage, build_leaf_spine
from topologies.model import Host, Link, Nic, Switch, Topology

__all__ = [
    "Host",
    "LeafSpine",
    "Link",
    "Nic",
    "Slower",
    "Stage",
    "Switch",
    "Topology",
    "build_leaf_spine",
]
