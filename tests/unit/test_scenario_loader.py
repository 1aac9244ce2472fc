"""The loader beyond single files: overrides, extends, names, and files that are no scenarios."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from testbed.errors import InputError
from testbed.scenario import load_scenario, shipped_scenarios
from testbed.scenario.models import HASH_FIELDS
from testbed.scenario.placement import place_hosts
from testbed.scenario.tree import Items, Leaf, Table, read_tree

GOOD = Path(__file__).resolve().parents[1] / "data" / "scenarios" / "good"
MINIMAL = "name: x\nworkload: {requests: {kv_bytes: 1mib}}\n"


def refusal(name: str, *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        load_scenario(name, overrides)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_defaults_of_a_minimal_scenario() -> None:
    scenario = load_scenario(str(GOOD / "minimal.yaml"))
    fabric, transport = scenario.fabric, scenario.transport
    assert (fabric.leaves, fabric.spines, fabric.hosts_per_leaf, fabric.mtu) == (3, 2, 4, 4200)
    assert (fabric.host_link.rate_bps, fabric.host_link.delay_ns) == (100_000_000_000, 1_000)
    assert (fabric.fabric_link.rate_bps, fabric.fabric_link.queue) == (100_000_000_000, None)
    assert fabric.queue.model_dump() == {
        "kmin_bytes": 100_000,
        "kmax_bytes": 400_000,
        "pmax": 0.2,
        "limit_bytes": 8_000_000,
        "xoff_bytes": None,
        "xon_bytes": None,
        "headroom_bytes": None,
    }
    assert (scenario.hosts.prefill.count, scenario.hosts.decode.count) == (8, 1)
    assert (transport.congestion_control, transport.ecn_on, transport.rto_min_ns) == (
        "dctcp",
        True,
        1_000_000,
    )
    assert scenario.routing.hash_fields == HASH_FIELDS[:4]
    assert (scenario.measure.interval_ns, scenario.measure.progress_ns) == (20_000, 100_000)
    assert (scenario.dilation, scenario.deadline.scenario_ns, scenario.deadline.real_ns) == (
        1,
        None,
        600 * 10**9,
    )
    assert (scenario.controller.framework, scenario.expect, scenario.description) == ("os-ken", (), "")


def test_texts_are_what_is_written() -> None:
    scenario = load_scenario(str(GOOD / "yaml-spellings.yaml"))
    assert (scenario.name, scenario.description) == ("on", "2024-01-01")
    assert scenario.transport.ecn == "true"


def test_layer_queues_differ_from_fabric_queue_only_where_written() -> None:
    fabric = load_scenario(str(GOOD / "layer-queues.yaml")).fabric
    host, link = fabric.queue_of(fabric.host_link), fabric.queue_of(fabric.fabric_link)
    assert (host.kmin_bytes, host.kmax_bytes, host.pmax, host.limit_bytes) == (20_000, 30_000, 1.0, 500_000)
    assert (link.kmin_bytes, link.kmax_bytes, link.limit_bytes, link.xoff_bytes) == (
        30_000,
        30_000,
        1_000_000,
        900_000,
    )


@pytest.mark.parametrize(
    ("control", "ecn", "on"),
    [("dctcp", "auto", True), ("cubic", "auto", False), ("cubic", "true", True), ("dctcp", "false", False)],
)
def test_ecn(control: str, ecn: str, on: bool) -> None:
    scenario = load_scenario("incast", [f"transport.congestion_control={control}", f"transport.ecn={ecn}"])
    assert scenario.transport.ecn_on is on


def test_overrides_change_single_values() -> None:
    scenario = load_scenario(
        "incast",
        [
            "fabric.queue.kmin=200kb",
            "fabric.host_link.queue.limit=3mb",
            "fabric.queue.xoff=null",
            "expect=[transfers.count == 8, verdict.segment == null]",
            "workload.background=[{from: p1, to: d1, duration: 1ms}]",
            "workload.background.0.duration=2ms",
            "description=Hello: a text = with signs",
            "transport={congestion_control: bbr}",
        ],
    )
    assert scenario.fabric.queue.kmin_bytes == 200_000
    assert scenario.fabric.queue.xoff_bytes is None
    assert scenario.fabric.queue_of(scenario.fabric.host_link).limit_bytes == 3_000_000
    assert scenario.expect == ("transfers.count == 8", "verdict.segment == null")
    assert scenario.workload.background[0].duration_ns == 2_000_000
    assert scenario.description == "Hello: a text = with signs"
    assert scenario.transport.congestion_control == "bbr"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "fabric.queue.kmin=300",
            "--set fabric.queue.kmin=300: fabric.queue.kmin: has no unit (found 300); write a number with "
            "one of b, kb, mb, gb, tb, kib, mib, gib, tib, as in 64mib",
        ),
        (
            "fabric.que.kmin=300kb",
            "--set fabric.que.kmin=300kb: fabric.que: is no known key; the keys are leaves, spines, "
            "hosts_per_leaf, mtu, loss, lossless, queue, host_link, fabric_link; did you mean 'queue'?",
        ),
        (
            "fabric.queue.kmax=9mb",
            "--set fabric.queue.kmax=9mb: fabric.queue.kmax: is above limit (found 9mb); at most limit, 8mb",
        ),
        ("name.first=x", "--set name.first=x: 'first' is looked for below a single value (found incast)"),
        ("expect.4=a == b", "--set expect.4=a == b: there is no item 4; the list has 1, from 0"),
        ("dilation", "--set dilation: is no assignment; write path.to.key=value"),
        ("=3", "--set =3: is no assignment; write path.to.key=value"),
        ("fabric..leaves=3", "--set fabric..leaves=3: is no assignment; write path.to.key=value"),
        ("extends=baseline", "--set extends=baseline: extends: cannot be set; write it in a file"),
        (
            "name=",
            "--set name=: name: is empty (found nothing); 1 to 48 of a-z, 0-9 and '-', not starting with '-'",
        ),
        (
            "name=[a",
            "--set name=[a: the value is not valid YAML: expected ',' or ']', but got '<stream end>'",
        ),
        ("name=*x", "--set name=*x: aliases (*name) are not supported; write the value out or use extends"),
    ],
)
def test_refused_overrides(override: str, message: str) -> None:
    assert refusal("incast", override) == message


def test_two_wrong_overrides_are_two_problems() -> None:
    # The first given is told, whatever the order of the keys' declaration.
    message = refusal("incast", "fabric.spines=0", "fabric.leaves=0")
    assert message == (
        "--set fabric.spines=0: fabric.spines: is out of range (found 0); 1 to 64 (and 1 more problem)"
    )


def test_extends_merges_and_null_takes_away() -> None:
    scenario = load_scenario(str(GOOD / "extends-file.yaml"))
    assert scenario.name == "extends-file"
    assert scenario.workload.transfers == ()
    assert scenario.workload.requests is not None
    assert scenario.workload.requests.count == 5
    assert scenario.workload.scale.size_factor == 0.125
    assert (scenario.deadline.scenario_ns, scenario.deadline.real_ns) == (None, 120 * 10**9)


def test_baseline_is_incast_with_changes() -> None:
    incast, baseline = load_scenario("incast"), load_scenario("baseline")
    assert baseline.workload == incast.workload
    assert baseline.fabric.fabric_link.rate_bps == 400_000_000_000
    assert baseline.fabric.fabric_link.delay_ns == incast.fabric.fabric_link.delay_ns
    assert baseline.expect == ("verdict.segment == null", "transfers.slowdown.p99 <= 1.05")


def test_errors_in_a_base_name_the_base(folder: Path) -> None:
    (folder / "base.yaml").write_text("name: base\nfabric:\n  leaves: none\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "top.yaml").write_text("extends: ../base.yaml\n" + MINIMAL)
    message = refusal("sub/top.yaml")
    assert message == "base.yaml:3: fabric.leaves: is no whole number (found none); a whole number, 1 to 64"


def test_extends_in_a_circle(folder: Path) -> None:
    (folder / "a.yaml").write_text("name: a\nextends: b.yaml\n")
    (folder / "b.yaml").write_text("name: b\n\nextends: ./a.yaml\n")
    assert refusal("a.yaml") == "b.yaml:3: extends: comes back to a.yaml; remove one of the two"


def test_a_chain_of_bases_has_an_end(folder: Path) -> None:
    for number in range(12):
        (folder / f"{number}.yaml").write_text(f"extends: {number + 1}.yaml\n")
    assert refusal("0.yaml") == "10.yaml:1: extends: is a chain of more than 10 files"


def test_a_name_that_is_neither() -> None:
    shipped = ", ".join(name for name, _ in shipped_scenarios())
    assert shipped.startswith("average-lies, baseline, ")
    assert refusal("incats") == (
        f"incats: is neither a shipped scenario nor a file; shipped are {shipped}; did you mean 'incast'?"
    )
    assert refusal("") == f"an empty name: is neither a shipped scenario nor a file; shipped are {shipped}"


def test_things_that_are_no_scenario_files(folder: Path) -> None:
    assert refusal("./none.yaml") == "none.yaml: cannot be read: No such file or directory"
    (folder / "folder").mkdir()
    assert refusal("folder") == "folder: cannot be read: Is a directory"
    (folder / "empty.yaml").write_text("")
    assert refusal("empty.yaml") == "empty.yaml:1: is empty; a scenario is a mapping that begins with name"
    (folder / "latin.yaml").write_bytes(b"name: x\ndescription: caf\xe9\n")
    assert refusal("latin.yaml") == "latin.yaml:2: is not UTF-8 text; save the file as UTF-8"
    (folder / "nul.yaml").write_bytes(b"name: x\n\n\0\n")
    assert refusal("nul.yaml") == "nul.yaml:3: is not valid YAML: special characters are not allowed"
    (folder / "huge.yaml").write_bytes(b"#" * 1_000_001)
    assert refusal("huge.yaml") == "huge.yaml: is larger than 1000000 bytes; no scenario is"
    assert refusal("a\0b.yaml") == "a\\x00b.yaml: is no path; it holds a null byte"
    (folder / "loop.yaml").symlink_to("loop.yaml")
    (folder / "looped.yaml").write_text("extends: loop.yaml\n")
    assert refusal("looped.yaml") == "looped.yaml:1: extends: is no file (found loop.yaml)"


def test_control_characters_stay_out_of_the_message(folder: Path) -> None:
    (folder / "x.yaml").write_text('name: "a\\nb\\e[31m"\n' + "workload: {requests: {kv_bytes: 1b}}\n")
    assert refusal("x.yaml") == (
        "x.yaml:1: name: is no valid name (found a\\nb\\x1b[31m); "
        "1 to 48 of a-z, 0-9 and '-', not starting with '-'"
    )


def test_a_byte_order_mark_and_windows_line_ends(folder: Path) -> None:
    (folder / "x.yaml").write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
    assert load_scenario("x.yaml").name == "x"


def test_an_unbuildable_fabric_is_refused_at_its_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "x.yaml").write_text(MINIMAL + "fabric:\n  spines: 2\n  leaves: 3\n")
    # No fabric within the ranges of the keys has such a long name today: shorten the limit instead.
    monkeypatch.setattr("topologies.leaf_spine.INTERFACE_NAME_MAX", 7)
    assert refusal("x.yaml") == (
        "x.yaml:5: fabric.leaves: cannot be built: the interface name 'p1-leaf1' is 8 characters long; "
        "Linux takes 7 (found 3); use fewer switches or hosts"
    )


@pytest.mark.parametrize(
    ("overrides", "prefill", "decode"),
    [
        ([], (1, 1, 1, 1, 2, 2, 2, 2), (3,)),
        (["hosts.prefill.count=3"], (1, 1, 1), (2,)),
        (["hosts.prefill.count=9", "hosts.decode.count=2"], (1,) * 4 + (2,) * 4 + (3,), (3, 3)),
        (["hosts.prefill.count=4", "hosts.decode.count=8"], (1,) * 4, (2,) * 4 + (3,) * 4),
        (["hosts.prefill.count=5", "hosts.decode.count=7"], (1,) * 4 + (2,), (2,) * 3 + (3,) * 4),
        (["hosts.prefill.leaves=[3, 1]", "hosts.prefill.count=5"], (3, 3, 3, 3, 1), (2,)),
        (["hosts.decode.leaves=[1]"], (1, 1, 1, 2, 2, 2, 2, 3), (1,)),
    ],
)
def test_placement(overrides: list[str], prefill: tuple[int, ...], decode: tuple[int, ...]) -> None:
    placed = place_hosts(load_scenario("incast", overrides))
    assert (placed.prefill_leaves, placed.decode_leaves) == (prefill, decode)


def test_positions_in_the_tree() -> None:
    tree = read_tree("a: 1\nb:\n- x\n-\n  - y\n", "f", 0)
    assert isinstance(tree, Table)
    assert tree.entries["a"] == Leaf("1", False, tree.entries["a"].place)
    assert str(tree.entries["b"].place) == "f:2"
    assert isinstance(tree.entries["b"], Items)
    assert [str(item.place) for item in tree.entries["b"].items] == ["f:3", "f:5"]


def message_of(action: Callable[[], object]) -> str | None:
    try:
        action()
    except InputError as error:
        return str(error)
    return None


@given(st.text(alphabet=st.sampled_from("ab: -[]{}#&*!|>'\"%@`,?\n\t~<=0.")))
@example("? [a]\n: b")
@example("- !!set {a}")
@example("a: |\n  b\n c")
def test_no_text_makes_a_traceback(text: str) -> None:
    message = message_of(lambda: read_tree(text, "f", 0))
    assert message is None or message.startswith("f:")
    assert message is None or "\n" not in message


@given(st.text(min_size=1), st.text())
@example("name", "!tag")
@example("hosts", "{a: 1, a: 2}")
def test_no_override_makes_a_traceback(path: str, value: str) -> None:
    message = message_of(lambda: load_scenario("incast", [f"{path}={value}"]))
    assert message is None or message.startswith("--set ")
    assert message is None or message.isprintable()


def test_shipped_descriptions() -> None:
    assert dict(shipped_scenarios())["incast"] == (
        "Eight prefill hosts finish together and hand their KV to one decode host."
    )
