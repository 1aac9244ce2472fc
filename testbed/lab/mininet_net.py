"""The one module that imports Mininet: the plan's topology as a Mininet network.

Mininet keeps what makes it Mininet: the topology object, nodes, links, switches started in one
batch, and the prompt. What it does with a shell command for each step is done in bulk instead:
namespaces and veth pairs in one `ip -batch`, and a host's shell only when somebody wants to type.
A host of stock Mininet costs three program starts before the first packet.
"""

from __future__ import annotations

import resource
import warnings
from typing import Any

from testbed.lab.hosts import make_namespaces, switch_off_offloads
from testbed.lab.qdiscs import delays_ns
from testbed.lab.system import run
from testbed.plan.model import Plan

with warnings.catch_warnings():
    # Mininet 2.3 reads Open vSwitch's version with distutils, which Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from mininet.link import Intf
    from mininet.link import Link as MininetLink
    from mininet.net import Mininet
    from mininet.node import Controller, Node, OVSSwitch
    from mininet.topo import Topo

OPEN_FILES = 256
"""RLIMIT_NOFILE for what the lab starts: `mnexec -c` closes every possible descriptor one by one."""

CONTROLLER_PORT = 6653


class LazyNode(Node):
    """A node whose shell starts when the first command is typed, in the namespace of its name."""

    built = False

    def startShell(self, mnopts: str | None = None) -> None:  # Mininet's name
        """Do nothing yet: a lab that is only measured never needs the shell."""

    @classmethod
    def checkSetup(cls) -> None:  # Mininet's name
        """The machine was checked before the lab started."""

    def config(self, **_params: Any) -> dict[str, Any]:
        """Addresses are set in bulk by `testbed.lab.hosts`."""
        return {}

    def cmd(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command in the node's shell, which is started for the first one.

        Before the network is built the only callers are Mininet's own constructors, whose work
        (addresses, `ifconfig up`) is done in bulk.
        """
        if not self.built:
            return ""
        self._wake()
        return super().cmd(*args, **kwargs)

    def sendCmd(self, *args: Any, **kwargs: Any) -> None:  # Mininet's name
        """Begin a command in the node's shell."""
        self._wake()
        super().sendCmd(*args, **kwargs)

    def _wake(self) -> None:
        if not self.shell:
            super().startShell()

    def popen(self, *args: Any, **kwargs: Any) -> Any:
        """Start a program in the node's namespace, without its shell."""
        return super().popen(*args, **{"mncmd": self._enter(), **kwargs})

    def _enter(self) -> list[str]:
        return ["ip", "netns", "exec", self.name] if self.inNamespace else []

    def _popen(self, cmd: list[str], **params: Any) -> Any:
        if cmd[0] == "mnexec":
            # The node's shell: with its pseudo-terminal as its own, so that Ctrl-C reaches its command.
            cmd = [*self._enter(), "setsid", "-c", *cmd[2:]]
        return super()._popen(cmd, **params)

    def terminate(self) -> None:
        """End the shell where there is one."""
        if self.shell:
            super().terminate()


class LabController(LazyNode, Controller):
    """Where the switches find the controller; the process itself is `testbed.lab.control`'s."""

    def __init__(self, name: str, **params: Any) -> None:
        self.ip, self.port, self.protocol = "127.0.0.1", CONTROLLER_PORT, "tcp"
        Node.__init__(self, name, inNamespace=False, **params)

    def start(self) -> None:
        """The controller's process is started by the lab."""

    def IP(self, intf: Any = None) -> str:  # Mininet's name
        """Return the controller's address."""
        return self.ip


class LabSwitch(LazyNode, OVSSwitch):
    """An Open vSwitch bridge with the kernel datapath, no forwarding of its own."""

    OVSVersion = "3.0"
    argmax = 100_000

    @classmethod
    def setup(cls) -> None:
        """The daemons are the lab's own and running."""

    def bridgeOpts(self) -> str:  # Mininet's name
        """OpenFlow 1.5 carries a group's hash explicitly; 1.3 stays on for tools."""
        return str(super().bridgeOpts()) + " protocols=OpenFlow13,OpenFlow15"

    def dpctl(self, *args: Any) -> Any:
        """Run `ovs-ofctl` on the bridge, which does not speak that program's default version."""
        return self.cmd("ovs-ofctl", "-O", "OpenFlow15", args[0], self, *args[1:])


class LabLink(MininetLink):
    """A cable whose veth pair is made later, with all others."""

    @classmethod
    def makeIntfPair(cls, *_args: Any, **_kwargs: Any) -> None:  # Mininet's name
        """Do nothing: see `_make_cables`."""


class LabIntf(Intf):
    """An interface that is configured in bulk."""

    def config(self, **_params: Any) -> dict[str, Any]:
        """Nothing to do for a single interface."""
        return {}

    def updateIP(self) -> str | None:  # Mininet's name
        """Return the address, which never changes."""
        return str(self.ip) if self.ip else None

    def ifconfig(self, *args: str) -> Any:
        """Mininet's `link X Y down` pulls the cable at the switch: a host's own end keeps its routes."""
        if args in (("up",), ("down",)) and self.node.inNamespace:
            return ""
        return super().ifconfig(*args)


class PlanTopo(Topo):
    """The plan's topology in Mininet's terms."""

    def build(self, plan: Plan) -> None:
        """Add every host, switch and cable under its name in the plan."""
        for host in plan.topology.hosts:
            self.addHost(host.name, ip=f"{host.ip}/8", mac=host.mac)
        for switch in plan.topology.switches:
            self.addSwitch(switch.name, dpid=f"{switch.dpid:016x}")
        nics = plan.topology.nics
        numbers = {nic.name: number for host in plan.topology.hosts for number, nic in enumerate(host.nics)}
        for there, back in zip(plan.topology.links[::2], plan.topology.links[1::2], strict=True):
            self.addLink(
                nics[there.src].host if there.src in nics else there.src,
                there.dst,
                port1=numbers.get(there.src, there.port),
                port2=back.port,
                intfName1=there.name,
                intfName2=back.name,
            )


def build_network(plan: Plan) -> Mininet:
    """Build the Mininet network of a plan: nodes, namespaces, cables; switches not yet started."""
    net = Mininet(
        topo=PlanTopo(plan=plan),
        host=LazyNode,
        switch=LabSwitch,
        link=LabLink,
        intf=LabIntf,
        controller=None,
        build=False,
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    net.addController("c0", controller=LabController)
    net.build()
    for host in plan.topology.hosts:
        for nic in host.nics:
            interface = net[host.name].intf(nic.up)
            interface.ip, interface.prefixLen, interface.mac = nic.ip, 8, nic.mac
    make_namespaces([host.name for host in plan.topology.hosts])
    _make_cables(plan)
    for node in net.values():
        node.built = True
    return net


def _make_cables(plan: Plan) -> None:
    lines = [f"link add {name} type ifb" for name in delays_ns(plan)]
    up = [line.split()[2] for line in lines]
    pairs = zip(plan.topology.links[::2], plan.topology.links[1::2], strict=True)
    for there, back in pairs:
        nic = plan.topology.nics.get(there.src)
        where = f" address {nic.mac} netns {nic.host}" if nic else ""
        lines.append(
            f"link add {there.name} mtu {plan.mtu}{where} type veth peer name {back.name} mtu {plan.mtu}"
        )
        up += [back.name] if nic else [there.name, back.name]
    lines += [f"link set {name} up" for name in up]
    run(["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")
    for name in up:
        switch_off_offloads(name)
