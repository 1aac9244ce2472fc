"""The one property whose bytes neither os-ken nor Ryu can encode: a SELECT group's hash.

Open vSwitch takes the hash method, its parameter and its fields as the Netronome experimenter
property of an OpenFlow 1.5 group mod (`struct ntr_group_prop_selection_method`, netronome-ext.h in the
Open vSwitch source). Both frameworks' experimenter class writes its payload in whole 32-bit words, and
the fields (a byte for ip_proto, two for a port) do not fill them: the length would be wrong. This is
no encoder of other messages. `controller.messages` calls it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

HASH_FIELDS = {
    "eth_src": (4, 6),
    "eth_dst": (3, 6),
    "eth_type": (5, 2),
    "ipv4_src": (11, 4),
    "ipv4_dst": (12, 4),
    "ip_proto": (10, 1),
    "tcp_src": (13, 2),
    "tcp_dst": (14, 2),
    "udp_src": (15, 2),
    "udp_dst": (16, 2),
}
"""Field name to OXM number (OpenFlow 1.5.1, table 11) and length in bytes.

The order is that of Open vSwitch's field ids (meta-flow.h), in which it hashes and sends them.
"""

NTR_VENDOR_ID = 0x0000154D
NTR_SELECTION_METHOD = 1
GROUP_PROP_EXPERIMENTER = 0xFFFF
OXM_OPENFLOW_BASIC = 0x8000
METHOD_BYTES = 16


def selection_property(hash_seed: int, hash_fields: Sequence[str]) -> bytes:
    """Return the group property that asks for `selection_method=hash` over `hash_fields`.

    `hash_seed` is the 64-bit selection_method_param. The length counts no padding; the bytes are
    padded to a multiple of 8, as every property of OpenFlow 1.5 is.
    """
    payload = struct.pack(f"!4x{METHOD_BYTES}sQ", b"hash", hash_seed)
    payload += b"".join(_whole_field(name) for name in HASH_FIELDS if name in hash_fields)
    length = 12 + len(payload)
    header = struct.pack("!HHII", GROUP_PROP_EXPERIMENTER, length, NTR_VENDOR_ID, NTR_SELECTION_METHOD)
    return header + payload + bytes(-length % 8)


def _whole_field(name: str) -> bytes:
    number, length = HASH_FIELDS[name]
    # The value of a field stands for its mask here: all ones hash the whole field.
    return struct.pack("!HBB", OXM_OPENFLOW_BASIC, number << 1, length) + b"\xff" * length
