"""Where everything stands in a record directory, and how its binary rows are laid out.

Names and numbers only: it opens no file and imports nothing, because the lab loads it as well. The writer and
the reader both take every name from here.

Binary files are rows of little-endian int64 without a header. Times in raw files are laboratory time in
nanoseconds since the workload's start; scenario time is that divided by the plan's dilation.
"""

from __future__ import annotations

FORMAT_VERSION = 1

MANIFEST = "manifest.json"
SCENARIO = "scenario.yaml"
PLAN = "plan.json"
ENVIRONMENT = "environment.json"

RAW = "raw"
PROGRESS = "raw/progress.bin"
OUTCOMES = "raw/outcomes.json"
REQUESTS = "raw/requests.json"
DATAPATH_FLOWS = "raw/datapath-flows.txt"
FACTS = "raw/facts.json"
BACKGROUND = "raw/background.json"
TCP_COUNTERS = "raw/tcp-counters.json"
ROCE_COUNTERS = "raw/roce-counters.json"
PAUSES = "raw/pauses.bin"
DEADLOCK = "raw/deadlock.json"
"""Of a lossless fabric: every pause, and the circle of paused ports that ended the run, if there was one."""
STRAY_DROPS = "raw/stray-drops.json"
PROCESSORS = "raw/processors.json"
LOGS = "logs"

SUMMARY = "summary.json"
TRANSFERS = "transfers.csv"
REQUESTS_TABLE = "requests.csv"
REPORT = "report.html"
DERIVED = (SUMMARY, TRANSFERS, REQUESTS_TABLE, REPORT)
"""Made from the record by the offline half; they can be made again and are no part of the raw facts."""

RUNNING = "running"
COMPLETE = "complete"
FAILED = "failed"
ABORTED = "aborted"
STATUSES = (RUNNING, COMPLETE, FAILED, ABORTED)
"""The manifest's `status`."""

FABRIC = "fabric"
HOSTS = "hosts"
"""The usual sample groups; a record may have others."""

INT64 = 8
"""Bytes of one number in a binary file."""

SAMPLE_FIELDS = ("backlog_bytes", "bytes", "packets", "drops", "ce_marks")
"""Fields of one link in a sample row. `backlog_bytes` is instantaneous, the others count up since boot."""

PROGRESS_FIELDS = ("time_ns", "transfer_id", "bytes_received")
"""Fields of a progress row; `bytes_received` is cumulative for its transfer."""

DEPARTURE_FIELDS = ("time_ns", "frame_bytes", "ecn", "source", "sequence")
"""Fields of a row for each packet that left a link: when, with how many bytes (Ethernet header included), its
two ECN bits, IPv4 source address and TCP sequence number."""

PAUSE_FIELDS = ("time_ns", "link", "by", "held")
"""Fields of a row of pauses: the queue of `by` holds `link` (1) or lets it go (0). Links are given by their
position among all of the plan's, cables first."""

_SAMPLES = "samples-"
_DEPARTURES = "departures-"


def samples_header(group: str) -> str:
    """Return the name of the JSON file that describes the samples of `group`."""
    return f"{RAW}/{_SAMPLES}{group}.json"


def samples_rows(group: str) -> str:
    """Return the name of the binary file that holds the samples of `group`."""
    return f"{RAW}/{_SAMPLES}{group}.bin"


def departure_header(link: str) -> str:
    """Return the name of the JSON file that describes the recorded departures of `link`."""
    return f"{RAW}/{_DEPARTURES}{link}.json"


def departure_rows(link: str) -> str:
    """Return the name of the binary file that holds the recorded departures of `link`."""
    return f"{RAW}/{_DEPARTURES}{link}.bin"


def group_of(file_name: str) -> str | None:
    """Return the group whose header is called `file_name` (no folder), None when it is no such header."""
    if file_name.startswith(_SAMPLES) and file_name.endswith(".json"):
        return file_name[len(_SAMPLES) : -len(".json")]
    return None


def sample_columns(links: int) -> int:
    """Return how many int64 a sample row of so many links has: the time, then each link's fields."""
    return 1 + links * len(SAMPLE_FIELDS)


def capture(link: str) -> str:
    """Return the name of the pcapng file with what left through `link`."""
    return f"{RAW}/capture-{link}.pcapng"


def log(name: str) -> str:
    """Return the name of the log file of the part called `name`."""
    return f"{LOGS}/{name}.log"
