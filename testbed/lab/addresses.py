"""What a host's network is told over rtnetlink, and what it says of it: links, addresses, routes, neighbours.

`hosts` calls it once for each host. The same with `ip` is a program start for each namespace, which in
User-Mode Linux takes some 30 ms of real time: a third of the time in which 9 hosts come up. Layouts are
those of linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h and linux/neighbour.h.
"""

from __future__ import annotations

import socket
import struct

from testbed.lab.netlink import (
    NLM_F_CREATE,
    NLM_F_EXCL,
    Command,
    Netlink,
    attribute,
    attributes,
    get_request,
    messages,
)

RTM_NEWLINK, RTM_GETLINK, RTM_NEWADDR, RTM_NEWROUTE, RTM_NEWNEIGH = 16, 18, 20, 24, 28

_NEW = NLM_F_CREATE | NLM_F_EXCL
_LINK = struct.Struct("=BxHiII")
_ADDRESS = struct.Struct("=BBBBI")
_ROUTE = struct.Struct("=BBBBBBBBI")
_NEIGHBOUR = struct.Struct("=BxxxiHBB")
_IFF_UP = 1
_IFLA_GSO_MAX_SEGS = 40
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_OIF, _RTA_PRIORITY, _RTA_PREFSRC, _RTA_METRICS = 1, 4, 6, 7, 8
_RTAX_LOCK, _RTAX_RTO_MIN = 1, 13
_RT_TABLE_MAIN, _RTPROT_BOOT, _RT_SCOPE_LINK, _RTN_UNICAST = 254, 3, 253, 1
_NDA_DST, _NDA_LLADDR = 1, 2
_NUD_PERMANENT = 0x80
_U32 = struct.Struct("=I")


def link_up(device: str, index: int, *, gso_max_segs: int = 0) -> Command:
    """Return what starts an interface, and says how many segments TCP may put into one of its packets."""
    segments = attribute(_IFLA_GSO_MAX_SEGS, _U32.pack(gso_max_segs)) if gso_max_segs else b""
    body = _LINK.pack(socket.AF_UNSPEC, 0, index, _IFF_UP, _IFF_UP) + segments
    return Command(RTM_NEWLINK, 0, body, f"starting {device}")


def address(device: str, index: int, ip: str) -> Command:
    """Return what gives an interface the address `ip`/32."""
    raw = socket.inet_aton(ip)
    body = _ADDRESS.pack(socket.AF_INET, 32, 0, 0, index)
    body += attribute(_IFA_LOCAL, raw) + attribute(_IFA_ADDRESS, raw)
    return Command(RTM_NEWADDR, _NEW, body, f"address {ip} of {device}")


def route(device: str, index: int, network: str, *, source: str, rto_min_ms: int, metric: int) -> Command:
    """Return what leads `network` ("10.0.0.0/8") over an interface, with TCP's shortest timeout."""
    destination, length = network.split("/")
    body = _ROUTE.pack(
        socket.AF_INET, int(length), 0, 0, _RT_TABLE_MAIN, _RTPROT_BOOT, _RT_SCOPE_LINK, _RTN_UNICAST, 0
    )
    body += attribute(_RTA_DST, socket.inet_aton(destination)) + attribute(_RTA_OIF, _U32.pack(index))
    body += attribute(_RTA_PREFSRC, socket.inet_aton(source))
    # TCP takes the timeout of a route only where that metric is locked.
    locked = attribute(_RTAX_LOCK, _U32.pack(1 << _RTAX_RTO_MIN))
    body += attribute(_RTA_METRICS, locked + attribute(_RTAX_RTO_MIN, _U32.pack(rto_min_ms)))
    body += attribute(_RTA_PRIORITY, _U32.pack(metric)) if metric else b""
    return Command(RTM_NEWROUTE, _NEW, body, f"route to {network} over {device}")


def neighbour(device: str, index: int, ip: str, mac: str) -> Command:
    """Return what tells an interface the hardware address of another host, for good."""
    body = _NEIGHBOUR.pack(socket.AF_INET, index, _NUD_PERMANENT, 0, 0)
    body += attribute(_NDA_DST, socket.inet_aton(ip))
    body += attribute(_NDA_LLADDR, bytes.fromhex(mac.replace(":", "")))
    return Command(RTM_NEWNEIGH, _NEW, body, f"neighbour {ip} of {device}")


def gso_max_segs(netlink: Netlink, index: int) -> int | None:
    """Return how many segments TCP may put into one packet of an interface; None where it does not say."""
    found = None
    for view, length in netlink.request(get_request(RTM_GETLINK, _LINK.pack(0, 0, index, 0, 0))):
        for kind, start, end in messages(view, length):
            if kind == RTM_NEWLINK:
                for name, first, _ in attributes(view, start + _LINK.size, end):
                    if name == _IFLA_GSO_MAX_SEGS:
                        (found,) = _U32.unpack_from(view, first)
    return found
