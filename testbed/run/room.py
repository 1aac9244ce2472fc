"""Whether this machine has room for a run: memory for its guest, disk for its record. Starts nothing.

What a run needs is `testbed.run.needs`. Called by `launch` before a record is begun, and by `testbed plan`,
which refuses what this machine has no memory for, and only tells of a run that would be ended or fill the
disk: a whole trace can be planned and counted, whatever part of it is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from testbed.errors import InputError, MachineError, TestbedError
from testbed.lab.guest_memory import Memory, memory_dir
from testbed.machine import Machine
from testbed.plan.model import Plan
from testbed.run.needs import MIB, needs_of

LATE = 2.0
"""How many times its deadline a run may be expected to last and is still tried: estimates err."""


def require_room(plan: Plan, out: Path, machine: Machine | None = None) -> Memory | None:
    """Return the memory of the plan's guest, None where it has none.

    Raises MachineError with the need, what there is, and what to change, when the machine has no room for
    the guest or for a record in `out`; InputError when the deadline would end the run.
    """
    machine = machine or Machine()
    for obstacle in obstacles(plan, out, machine):
        raise obstacle
    return require_memory(plan, machine)


def obstacles(plan: Plan, out: Path, machine: Machine | None = None) -> Iterator[TestbedError]:
    """Yield why a run of the plan into `out` would be refused though the machine has memory for it."""
    machine, needs = machine or Machine(), needs_of(plan)
    if needs.real_s > LATE * plan.deadline.real_s:
        yield InputError(
            f"the run takes about {needs.real_s:.0f} s of real time, and is ended after "
            f"{plan.deadline.real_s:g} s (deadline.real): set it to {2 * needs.real_s:.0f}s, or move less"
        )
    folder = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    free = machine.free_bytes(str(folder))
    if needs.record_bytes > free:
        yield MachineError(
            f"the record takes about {_size(needs.record_bytes)}, and {folder} has {_size(free)} free: give "
            "another --out, or sample less often (measure.interval)"
        )


def require_memory(plan: Plan, machine: Machine | None = None) -> Memory | None:
    """Return the memory of the plan's guest, None where it has none; MachineError if it does not fit."""
    machine, needs = machine or Machine(), needs_of(plan)
    if plan.backend != "uml":
        return None
    most = machine.most_maps()
    if most is not None and needs.maps > most:
        raise MachineError(
            f"a program of the guest needs about {needs.maps} memory mappings, the machine allows {most}: "
            f"sysctl -w vm.max_map_count={2 * needs.maps}, or use fewer transfers"
        )
    available = machine.available_memory_bytes()
    if available is not None and needs.touched_bytes > available:
        raise MachineError(
            f"the guest needs about {_size(needs.touched_bytes)} of memory, and this machine has "
            f"{_size(available)} left: use fewer hosts or transfers, or a larger machine"
        )
    return Memory(needs.memory_mib, memory_dir(needs.touched_bytes))


def _size(count: int) -> str:
    return f"{count / MIB:,.0f} MiB"
