"""Which keys `summary.json` has, so that an expectation of another one is refused before anything runs.

The analysis writes the summary; this is what a scenario may ask of it. A test holds the two against
each other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from topologies.model import SEGMENTS

Tree = Mapping[str, "Tree | None"]

LINK, HOST, PAIR = "<link>", "<host>", "<pair>"
"""Places of a name that depends on the scenario."""

ANYTHING = "<anything>"
"""A key below which the summary has what the run makes of it."""

_SPREAD: Tree = dict.fromkeys(("mean", "p50", "p95", "p99", "max"))
_SHARES: Tree = dict.fromkeys((*SEGMENTS, "sender"))
_GROUP: Tree = {"segment": None, "lost_ms": None, "shares": _SHARES}
_TAILS: Tree = dict.fromkeys(("p50", "p99"))

_PARTS = ("wait", "prefill", "transfer", "landing", "admission", "first_step")

KEYS: Tree = {
    **dict.fromkeys(("format_version", "scenario", "seed", "backend", "clock", "dilation")),
    "transfers": {
        **dict.fromkeys(("count", "completed", "bytes", "last_end_ms", "ideal_last_end_ms")),
        **dict.fromkeys(("jain", "retransmissions")),
        **dict.fromkeys(("fct_ms", "ideal_ms", "slowdown"), _SPREAD),
    },
    "ttft_ms": {"count": None, **_SPREAD, "by_decode": {HOST: _TAILS}, "by_pair": {PAIR: _TAILS}},
    "requests": {
        **dict.fromkeys(("count", "completed", "connector", "placement", "bytes", "not_moved")),
        **dict.fromkeys(("cached_blocks", "exposed_share", "jain")),
        "scale": dict.fromkeys(("bytes", "time")),
        "parts": {part: dict.fromkeys(("mean_ms", "share")) for part in _PARTS},
        **dict.fromkeys(("isolated_ms", "contended_ms", "slowdown"), _SPREAD),
        "slo": dict.fromkeys(("ttft_ms", "attained")),
        "by_decode": {HOST: {"count": None, "ttft_ms": _SPREAD, "parts_ms": dict.fromkeys(_PARTS)}},
    },
    "workload": {
        **dict.fromkeys(("source", "requests", "prompt_tokens", "output_tokens", "kv_bytes", "scale")),
        "skipped": {ANYTHING: None},
    },
    "links": {
        LINK: {
            **dict.fromkeys(("segment", "from", "to", "rate_bps", "bytes", "packets", "ce_marks", "drops")),
            **dict.fromkeys(("marked_share", "standing_ms", "lost_ms", "xoff_crossings")),
            "utilisation": dict.fromkeys(("mean", "peak")),
            "pauses": {**dict.fromkeys(("count", "total_ms", "longest_ms")), "by": {ANYTHING: None}},
            "queue_bytes": dict.fromkeys(("mean", "p99", "max")),
        }
    },
    "fabric": {**dict.fromkeys(("utilisation", "limiting_links")), "nics": {ANYTHING: None}},
    "pauses": {
        **dict.fromkeys(("count", "total_ms", "longest_ms", "links", "first_ms", "first_by", "roots")),
        **dict.fromkeys(("last_end_ms", "lossless")),
        "deadlock": {ANYTHING: None},
        "victims": {"count": None, "worst": {ANYTHING: None}},
    },
    "verdict": {
        **dict.fromkeys(("segment", "link", "share", "link_share", "scope", "text", "culprits")),
        **dict.fromkeys(("lost_ms", "unavoidable_ms")),
        "shares": _SHARES,
        "accused": dict.fromkeys(SEGMENTS),
        "tail": {**dict.fromkeys(("segment", "link", "share")), "shares": _SHARES},
        "by_prefill": {HOST: _GROUP},
        "by_decode": {HOST: _GROUP},
        "by_pair": {PAIR: _GROUP},
        "naive": dict.fromkeys(("link", "utilisation_mean", "text")),
    },
    "roce": {
        **dict.fromkeys(("packets_sent", "not_landed", "ce_packets", "cnps_sent", "cnps_received")),
        **dict.fromkeys(("naks", "timeouts", "intact", "bad_packets", "shortest_cnp_gap_us")),
        "first_cnp": dict.fromkeys(("at_ms", "queue", "queued_bytes", "queued_share")),
    },
    "events": {
        **dict.fromkeys(("burst_began_ms", "first_ce_ms", "first_ce_link", "first_slowdown_ms")),
        **dict.fromkeys(("first_slowdown_host", "peak_before_slowdown", "queue_peak_ms", "queue_peak_link")),
        "xoff": {ANYTHING: None},
        "links": {LINK: {"first_ce_ms": None, "queue_peak_ms": None, "xoff": {ANYTHING: None}}},
    },
    "fidelity": dict.fromkeys(("valid", "reasons", "checks")),
}

SEGMENT_KEYS: Collection[tuple[str, ...]] = (
    ("verdict", "segment"),
    ("verdict", "tail", "segment"),
    *(("verdict", group, HOST, "segment") for group in ("by_prefill", "by_decode")),
    ("verdict", "by_pair", PAIR, "segment"),
)
"""Keys whose value is a segment or null."""

LINK_KEYS: Collection[tuple[str, ...]] = (("verdict", "link"), ("verdict", "tail", "link"))
"""Keys whose value is a link or null."""


IDEALS: Mapping[tuple[str, ...], tuple[str, ...] | float] = {
    ("transfers", "slowdown"): 1.0,
    ("transfers", "fct_ms"): ("transfers", "ideal_ms"),
    ("transfers", "last_end_ms"): ("transfers", "ideal_last_end_ms"),
    ("requests", "slowdown"): 1.0,
    ("requests", "contended_ms"): ("requests", "isolated_ms"),
}
"""What `ideal` stands for beside a key: a number, or the key that holds it (with the same names below)."""


def ideal_of(path: tuple[str, ...]) -> tuple[str, ...] | float | None:
    """Return what `ideal` stands for beside `path`: a number or a path; None where there is no ideal."""
    for keys, known in IDEALS.items():
        if path[: len(keys)] == keys:
            return known if isinstance(known, float) else (*known, *path[len(keys) :])
    return None


@dataclass(frozen=True)
class Names:
    """The names a scenario gives: of its links, and of its hosts."""

    links: Collection[str]
    hosts: Collection[str]

    def of(self, place: str) -> Collection[str] | None:
        """Return the names that fit a place, None where it takes any name."""
        return {LINK: self.links, HOST: self.hosts}.get(place)


def words_of(path: Sequence[str], names: Names) -> Collection[str]:
    """Return the words that may stand at a known key, beside null; none where anything may."""
    if any(_fits(path, keys) for keys in SEGMENT_KEYS):
        return SEGMENTS
    return names.links if any(_fits(path, keys) for keys in LINK_KEYS) else ()


def _fits(path: Sequence[str], keys: Sequence[str]) -> bool:
    places = (HOST, PAIR)
    return len(path) == len(keys) and all(
        wanted in places or key == wanted for key, wanted in zip(path, keys, strict=True)
    )


@dataclass(frozen=True)
class Unknown:
    """A key that is not there: the key itself, what it was looked for in, and what is there."""

    key: str
    above: str
    options: tuple[str, ...]


def unknown_key(path: Sequence[str], names: Names) -> Unknown | None:
    """Return the first key of an expectation's path that no summary of the scenario has, None if all are."""
    tree: Tree | None = KEYS
    for depth, key in enumerate(path):
        options = _options(tree, names)
        if options is None:
            return None
        if key not in options:
            return Unknown(key, ".".join(path[:depth]) or "the summary", tuple(options))
        assert tree is not None
        tree = tree.get(key, next(iter(tree.values())))
    return None


def keys_below(path: Sequence[str]) -> tuple[str, ...]:
    """Return the keys that stand below a known path, none where it leads to a single value or a list."""
    tree: Tree | None = KEYS
    for key in path:
        if tree is None or ANYTHING in tree:
            return ()
        tree = tree[key] if key in tree else next(iter(tree.values()))
    return tuple(tree or ())


def _options(tree: Tree | None, names: Names) -> Collection[str] | None:
    """Return the keys that may stand below a place, None where any may."""
    if tree is None:
        return ()
    place = next(iter(tree))
    if place in (ANYTHING, PAIR):
        return None
    return names.of(place) or tuple(tree)
