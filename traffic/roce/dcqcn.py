"""DCQCN, the two ends of it that are in NICs: when a receiver notifies, and how a sender's rate answers.

Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015, sections 3.1 and 5. The
third end, marking between K_min and K_max, is the switches'. Pure: events and their times in, rate out.

Implementations differ from the paper in two places, and so do the parameter sets. The paper updates alpha
and cuts the rate when a notification arrives, and waits `alpha_timer` without one to decay alpha. NICs (and
the public HPCC simulator, which follows them) sample: every `alpha_timer` alpha moves up or down by whether
a notification came in it, and a rate is cut at most once in `cut_interval`. A set samples when its
`cut_interval` is not 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from traffic.roce.rate import NEVER_NS

_US = 1_000
_MBIT = 1_000_000


@dataclass(frozen=True)
class Parameters:
    """All of DCQCN at the hosts. `byte_counter` 0 is none; `cut_interval_ns` 0 cuts at each notification.

    `fast_recovery` is how many increases go half-way back to the target before that rises (F).
    """

    g: float
    cnp_interval_ns: int
    alpha_timer_ns: int
    rate_timer_ns: int
    byte_counter: int
    additive_bps: int
    hyper_bps: int
    fast_recovery: int
    min_rate_bps: int
    cut_interval_ns: int


@dataclass(frozen=True)
class ParameterSet:
    """A named set: for a link of `link_bps`, what it is, and where each value comes from.

    With `per_rate` the rate steps are in proportion to the link's rate.
    """

    parameters: Parameters
    link_bps: int
    per_rate: bool
    source: str

    def on(self, link_bps: int) -> Parameters:
        """Return the parameters for a NIC of this rate."""
        if not self.per_rate:
            return self.parameters
        own = self.parameters
        return replace(
            own,
            additive_bps=own.additive_bps * link_bps // self.link_bps,
            hyper_bps=own.hyper_bps * link_bps // self.link_bps,
        )


_PAPER = Parameters(
    g=1 / 256,
    cnp_interval_ns=50 * _US,
    alpha_timer_ns=55 * _US,
    rate_timer_ns=55 * _US,
    byte_counter=10_000_000,
    additive_bps=40 * _MBIT,
    hyper_bps=200 * _MBIT,
    fast_recovery=5,
    min_rate_bps=40 * _MBIT,
    cut_interval_ns=0,
)
_HPCC = Parameters(
    g=1 / 256,
    cnp_interval_ns=4 * _US,
    alpha_timer_ns=1 * _US,
    rate_timer_ns=300 * _US,
    byte_counter=0,
    additive_bps=5 * _MBIT,
    hyper_bps=50 * _MBIT,
    fast_recovery=1,
    min_rate_bps=1000 * _MBIT,
    cut_interval_ns=4 * _US,
)

SETS = {
    "paper": ParameterSet(
        _PAPER,
        40_000_000_000,
        False,
        "the fluid model of the DCQCN paper (public MATLAB): K_min 5 KB, K_max 200 KB, P_max 1 % "
        "at 40 Gbit/s; hyper "
        "increase from the authors' ns-3 code, as the model has none; lowest rate: one additive step",
    ),
    "hpcc": ParameterSet(
        _HPCC,
        25_000_000_000,
        True,
        "`dcqcn` of the HPCC simulator's run.py: K_min 100 KB, K_max 400 KB, P_max 0.2 at 25 "
        "Gbit/s, thresholds and "
        "rate steps in proportion to the rate; its receivers notify with every ACK, here once in the time "
        "between two cuts",
    ),
    "hpcc-paper": ParameterSet(
        replace(
            _HPCC,
            cnp_interval_ns=50 * _US,
            alpha_timer_ns=50 * _US,
            rate_timer_ns=55 * _US,
            cut_interval_ns=50 * _US,
        ),
        25_000_000_000,
        True,
        "`dcqcn_paper` of the same: the paper's timers (cut and alpha 50 us, rate 55 us), all else as `hpcc`",
    ),
    "connectx": ParameterSet(
        replace(_HPCC, g=5 / 1024, min_rate_bps=1 * _MBIT),
        25_000_000_000,
        False,
        "NVIDIA's defaults: dce_tcp_g 1019/1024, alpha every 1 us, cuts 4 us apart and by half at "
        "most, lowest rate "
        "1 Mbit/s; rate timer and steps (300 us, 5 and 50 Mbit/s) as the HPCC simulator has them "
        "for these NICs",
    ),
}


class ReactionPoint:
    """The sender's rate: a `RateControl`. Starts at the line's rate and is left alone until the first CNP."""

    def __init__(self, parameters: Parameters, line_bps: float) -> None:
        self._own = parameters
        self._line_bps = float(line_bps)
        self._lowest_bps = min(parameters.min_rate_bps, self._line_bps)
        self.rate_bps = self._line_bps
        self.target_bps = self._line_bps
        self.alpha = 1.0
        self.next_change_ns = NEVER_NS
        self._sampled = parameters.cut_interval_ns > 0
        self._next_alpha_ns = NEVER_NS
        self._next_rate_ns = NEVER_NS
        self._next_cut_ns = NEVER_NS
        self._may_cut_ns = 0
        self._notified = False
        self._timer_stage = self._byte_stage = 0
        self._bytes = 0

    # ---- events -----------------------------------------------------------------------

    def on_cnp(self, now_ns: int) -> None:
        """A notification arrived: cut, by what alpha was before it (paper: equation 1)."""
        self.advance(now_ns)
        if not self._sampled:
            self._cut(now_ns)
            self._raise_alpha()
            self._next_alpha_ns = now_ns + self._own.alpha_timer_ns
        else:
            self._notified = True
            if self._next_alpha_ns == NEVER_NS:
                self._next_alpha_ns = now_ns + self._own.alpha_timer_ns
            if now_ns >= self._may_cut_ns:
                self._cut(now_ns)
            else:
                self._next_cut_ns = self._may_cut_ns
        self._settle()

    def on_sent(self, frame_bytes: int, now_ns: int) -> None:
        """Count bytes since the last cut; nothing rises before the first notification."""
        if not self._own.byte_counter or self._next_rate_ns == NEVER_NS:
            return
        self._bytes += frame_bytes
        while self._bytes >= self._own.byte_counter:
            self._bytes -= self._own.byte_counter
            self._byte_stage += 1
            self._increase()

    def on_ack(self, now_ns: int) -> None:
        """DCQCN does not look at acknowledgements."""

    def advance(self, now_ns: int) -> None:
        """Let the timers that are due by now expire, in their order."""
        while self.next_change_ns <= now_ns or self._next_alpha_ns <= now_ns:
            if self._next_alpha_ns <= self.next_change_ns:
                self._on_alpha_timer(min(now_ns, self.next_change_ns))
            elif self._next_cut_ns <= self._next_rate_ns:
                self._cut(self._next_cut_ns)
            else:
                self._timer_stage += 1
                self._next_rate_ns += self._own.rate_timer_ns
                self._increase()
            self._settle()

    # ---- the algorithm ----------------------------------------------------------------

    def _cut(self, now_ns: int) -> None:
        self.target_bps = self.rate_bps
        self.rate_bps = max(self.rate_bps * (1 - self.alpha / 2), self._lowest_bps)
        self._timer_stage = self._byte_stage = self._bytes = 0
        self._next_rate_ns = now_ns + self._own.rate_timer_ns
        self._may_cut_ns = now_ns + self._own.cut_interval_ns
        self._next_cut_ns = NEVER_NS

    def _raise_alpha(self) -> None:
        self.alpha += self._own.g * (1 - self.alpha)

    def _on_alpha_timer(self, until_ns: int) -> None:
        """Let the timer expire as often as it is due by `until_ns`; a notification counts the first time."""
        times = 1
        if self._notified:
            self._notified = False
            self._raise_alpha()
        else:
            times += (until_ns - self._next_alpha_ns) // self._own.alpha_timer_ns
            self.alpha *= (1 - self._own.g) ** times
        self._next_alpha_ns += times * self._own.alpha_timer_ns

    def _increase(self) -> None:
        """Half-way to the target; from stage F + 1 on the target itself rises.

        It does so by the hyper step once all counters are past F. A set without a byte counter has one
        counter only, and takes one additive step first, as the HPCC simulator does.
        """
        stages = (self._timer_stage, self._byte_stage) if self._own.byte_counter else (self._timer_stage,)
        threshold = self._own.fast_recovery
        if min(stages) > threshold + (len(stages) == 1):
            self.target_bps += self._own.hyper_bps
        elif max(stages) > threshold:
            self.target_bps += self._own.additive_bps
        self.target_bps = min(self.target_bps, self._line_bps)
        self.rate_bps = (self.rate_bps + self.target_bps) / 2

    def _settle(self) -> None:
        self.next_change_ns = min(self._next_rate_ns, self._next_cut_ns)


class NotificationPoint:
    """The receiver's side of one queue pair: a marked packet is notified of, but not within the interval."""

    def __init__(self, interval_ns: int) -> None:
        self._interval_ns = interval_ns
        self._may_ns = 0

    def on_ce(self, now_ns: int) -> bool:
        """Return whether the marked packet that arrived now is to be notified of."""
        if now_ns < self._may_ns:
            return False
        self._may_ns = now_ns + self._interval_ns
        return True
