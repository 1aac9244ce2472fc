"""controller.json: made from a plan, read back, refused when it is not right."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.document import (
    CONNECT_LEAD_NS,
    Document,
    Host,
    LeastLoaded,
    Pin,
    Port,
    Switch,
    controller_document,
    parse_document,
    read_document,
)
from controller.errors import DocumentError
from testbed.plan.build import build_plan
from testbed.plan.dilation import dilated
from testbed.scenario import load_scenario
from topologies import LeafSpine, build_leaf_spine
from traffic import tcp_replay

GOOD: dict[str, Any] = {
    "format_version": 2,
    "policy": "pinned",
    "hash_fields": ["ipv4_src", "tcp_dst"],
    "hash_seed": 2**64 - 1,
    "pinned": [{"src": "p1", "dst": None, "spine": "spine1"}],
    "least_loaded": None,
    "switches": [
        {"name": "leaf1", "dpid": 1, "tier": "leaf", "index": 1},
        {"name": "spine1", "dpid": 65537, "tier": "spine", "index": 1},
    ],
    "hosts": [{"name": "p1", "ip": "10.0.1.1", "leaf": "leaf1"}],
    "links": [
        {"src": "leaf1", "dst": "p1", "port": 2},
        {"src": "leaf1", "dst": "spine1", "port": 1},
        {"src": "spine1", "dst": "leaf1", "port": 1},
    ],
}


def test_the_document_of_a_plan() -> None:
    topology = build_leaf_spine(LeafSpine(1, 1, 2, 10**11, 1000, 10**11, 1000, (1,), ()))
    pinned = (SimpleNamespace(src="p1", dst=None, spine="spine1"),)
    routing = SimpleNamespace(
        policy="pinned", hash_fields=("ipv4_src", "tcp_dst"), hash_seed=2**64 - 1, pinned=pinned
    )
    assert controller_document(SimpleNamespace(topology=topology, routing=routing)) == GOOD


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "controller.json"
    path.write_text(json.dumps(GOOD))
    assert read_document(path) == Document(
        policy="pinned",
        hash_fields=("ipv4_src", "tcp_dst"),
        hash_seed=2**64 - 1,
        pinned=(Pin("p1", None, "spine1"),),
        least_loaded=None,
        switches=(Switch("leaf1", 1, "leaf", 1), Switch("spine1", 65537, "spine", 1)),
        hosts=(Host("p1", "10.0.1.1", "leaf1"),),
        ports=(Port("leaf1", "p1", 2), Port("leaf1", "spine1", 1), Port("spine1", "leaf1", 1)),
    )


FIELD_NAMES = "eth_src, eth_dst, eth_type, ipv4_src, ipv4_dst, ip_proto, tcp_src, tcp_dst, udp_src, udp_dst"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["format_version"], 1, "format_version: 1 is not known, expected 2"),
        (["hash_fields"], [], f"hash_fields: is empty, expected some of {FIELD_NAMES}"),
        (["hash_fields"], "tcp", "hash_fields: expected a list, found str"),
        (["hash_fields", 0], "ip_src", f"hash_fields[0]: 'ip_src' is not known, expected {FIELD_NAMES}"),
        (["hash_fields", 0], "tcp_dst", "hash field 'tcp_dst' stands twice"),
        (["hash_seed"], -1, "hash_seed: expected a whole number from 0 to 18446744073709551615, found -1"),
        (
            ["hash_seed"],
            True,
            "hash_seed: expected a whole number from 0 to 18446744073709551615, found True",
        ),
        (["policy"], "spray", "policy: 'spray' is not known, expected ecmp, pinned, polarised, least-loaded"),
        (["policy"], "least-loaded", "least_loaded: is missing for policy least-loaded"),
        (["least_loaded"], {}, "least_loaded: is not for policy pinned"),
        (["pinned", 0, "src"], "p9", "pinned: 'p9' is no host"),
        (["pinned", 0, "dst"], "p9", "pinned: 'p9' is no host"),
        (["pinned", 0, "dst"], "", "pinned[0].dst: expected a name, found ''"),
        (["pinned", 0, "spine"], "leaf1", "pinned: 'leaf1' is no spine"),
        (["pinned"], 2 * GOOD["pinned"], "pinned path ('p1', None) stands twice"),
        (["switches", 0, "index"], 0, "switches[0].index: expected a whole number from 1 to 65535, found 0"),
        (["switches", 1, "tier"], "leaf", "switch number ('leaf', 1) stands twice"),
        (["switches", 1, "dpid"], 1, "dpid 1 stands twice"),
        (["switches", 1, "name"], "leaf1", "switch name 'leaf1' stands twice"),
        (["switches", 0, "tier"], "core", "switches[0].tier: 'core' is not known, expected leaf, spine"),
        (["switches", 0], [], "switches[0]: expected an object, found list"),
        (["switches", 0, "colour"], "red", "switches[0]: unknown colour"),
        (["hosts", 0, "ip"], "10.0.1", "hosts[0].ip: expected an IPv4 address, found '10.0.1'"),
        (["hosts", 0, "ip"], 10, "hosts[0].ip: expected an IPv4 address, found 10"),
        (["hosts", 0, "name"], "", "hosts[0].name: expected a name, found ''"),
        (["hosts", 0, "leaf"], "spine1", "hosts: p1 hangs on 'spine1', which is no leaf"),
        (["hosts", 0, "leaf"], "leaf9", "hosts: p1 hangs on 'leaf9', which is no leaf"),
        (["links", 0, "port"], 0, "links[0].port: expected a whole number from 1 to 4294967040, found 0"),
        (["links", 0, "port"], 1, "port ('leaf1', 1) stands twice"),
        (["links", 0, "dst"], "spine1", "link ('leaf1', 'spine1') stands twice"),
        (["links", 0, "dst"], "p9", "links: 'leaf1' to 'p9' does not join known names"),
    ],
)
def test_a_wrong_value_is_refused(path: list[Any], value: Any, message: str) -> None:
    data = copy.deepcopy(GOOD)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(DocumentError) as caught:
        parse_document(data)
    assert str(caught.value) == message


BALANCED = {**GOOD, "policy": "least-loaded", "least_loaded": {"poll_ns": 1, "hold_ns": 2, "flow_bps": 3}}


def test_least_loaded_has_its_numbers() -> None:
    assert parse_document(BALANCED).least_loaded == LeastLoaded(poll_ns=1, hold_ns=2, flow_bps=3)
    wrong = {**BALANCED, "least_loaded": {"poll_ns": 0, "hold_ns": 2, "flow_bps": 3}}
    with pytest.raises(DocumentError, match=r"^least_loaded\.poll_ns: expected a whole number from 1 to "):
        parse_document(wrong)


def test_least_loaded_of_a_plan_is_in_the_labs_time() -> None:
    changes = ["routing.policy=least-loaded", "routing.poll=500us", "dilation=100"]
    plan = build_plan(load_scenario("incast", changes), seed=1, backend="uml", clock="real")
    assert plan.routing.poll_ns == 500_000
    assert controller_document(dilated(plan))["least_loaded"] == {
        "poll_ns": 50_000_000,
        # A connection is opened 2 ms before it sends; two polls must have seen it send.
        "hold_ns": 200_000_000 + 2 * 50_000_000,
        "flow_bps": 1_000_000_000,
    }


def test_the_lead_of_connections_is_the_traffic_programs() -> None:
    assert tcp_replay.CONNECT_LEAD_NS == CONNECT_LEAD_NS


def test_a_missing_key_is_named() -> None:
    data = {key: value for key, value in GOOD.items() if key != "policy"}
    with pytest.raises(DocumentError, match="^document: missing policy$"):
        parse_document(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file or directory"),
        ("{", "is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[]", "document: expected an object, found list"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "controller.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DocumentError) as caught:
        read_document(path)
    assert str(caught.value) == f"{path}: {message}"
    assert caught.value.exit_code == 2
