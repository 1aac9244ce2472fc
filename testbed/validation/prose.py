"""What docs/validation.md says beside its tables."""

BEFORE = """\
An emulator is worth as much as what it has been held against that it did not make. Each row below is one
measurement: what was measured, what it should be, how far off it may be and where that room comes from, and
whose figure it is. `testbed validate` makes the table anew (`--quick` a part of it in about two minutes),
exits with 1 when a row falls short, and takes names and patterns: `testbed validate gaps
'shaping.rate.100gbit.*'`.

* **Shaping** and **gaps** hold links against their own rate and delay. A departure's time is the kernel's,
  taken where a packet leaves the queue (`measure.departures` records them in any scenario). Every link has
  a token bucket of 64 ns at its rate and the virtual clock a step of 8 ns. Both are far below a frame up to
  10 Gbit/s: the unit of `gaps` is then a frame or two. At 100 Gbit/s a frame of 4,214 B takes 337 ns, so
  that a bucket is a fifth of it and single gaps jitter by some per cent; over the burst of four frames that
  makes the unit there, the deviation is below 1 %. In nanoseconds it is the same at every rate.
* **Marking** counts marks by the backlog that packets met. **DCTCP** compares its queue with the published
  model and with the hardware's samples in the data of mininet-tests.
* **Collapse** is the goodput of a synchronised block when one timeout decides. **ECMP** and **closed
  forms** are arithmetic. **DCQCN** is held against the paper's equations and its fluid model, **PFC**
  against what pauses are for: nothing is dropped, and whoever stands behind a paused port waits.
  **Diagnosis** is the shipped scenarios' own answers; [diagnosis.md](diagnosis.md) has ten seeds of each.
"""

CANNOT = """\
## What the virtual clock cannot show

* **The cost of computing.** In virtual time every instruction is free: no host is short of CPU, no
  interrupt is late, no switch's control plane is busy. A run is never slow for that reason, and never shows
  it.
* **Many kernels.** All hosts and switches share one guest kernel and its TCP; differences between operating
  systems, drivers or NIC firmware are not there. Checksums of IP and TCP are not computed.
* **A switch's chip.** Every port has a queue of its own with a fixed limit. Buffers shared between ports,
  their dynamic thresholds, cut-through forwarding and scheduling within the chip are not modelled.
* **Clock skew.** All programs read one clock.
* **Less than 8 ns.** That is the clock's step; a gap cannot be told finer, and frames of 1,500 B at 400
  Gbit/s (30 ns) are beyond it.

## When to use the real clock

`--clock real` (with `dilation`) lets computing cost what it costs on this machine: use it to try programs
whose own speed matters, to run on the machine's own kernel and modules (`--backend native`), or to see that
a result does not hang on virtual time. A run on it is checked for what the virtual clock has for free
(processors idle each second, senders and probes on time, gaps of the busiest port), takes `dilation` times
longer, and differs from run to run. For everything else virtual time is exact and repeatable.
"""
