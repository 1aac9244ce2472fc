"""The thin entry inside the lab of `testbed shell`: bring the plan up and hand it to Mininet's prompt.

Started as `testbed.run.inside` is, by the same script. The commands come from the job's file
`commands`, or from the terminal that the job names.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import termios
import textwrap
from pathlib import Path
from typing import Any

from testbed.lab.bringup import Lab
from testbed.lab.mininet_prompt import run_prompt
from testbed.lab.prompt_words import COMMANDS, LOG, STEP
from testbed.plan.model import Plan
from testbed.record import layout
from testbed.run.inside import Progress, main

LEAVE = "`help` lists the commands; `exit` or Ctrl-D leaves, Ctrl-] ends the lab at once."
STILL = "Time stands still while the prompt waits for you, and races while a command does."
SLOW = "All rates are divided, all delays multiplied by {0:g} (dilation)."


def use(plan: Plan, lab: Lab, record: Path, work_dir: Path, progress: Progress) -> None:
    """Give the lab to whoever types."""
    del work_dir
    job_dir = Path(sys.argv[1])
    job = json.loads((job_dir / "job.json").read_text())
    if job["terminal"] is None:
        commands = (job_dir / COMMANDS).read_text().splitlines()
        _take_output(os.open(record / layout.log(LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644))
        progress(STEP)
        run_prompt(lab.net, lab.check, commands)
    else:
        _take_terminal(job)
        progress(STEP)
        print(banner(plan))
        run_prompt(lab.net, lab.check, None)


def banner(plan: Plan) -> str:
    """Return what a person is told before the first prompt."""
    hosts = " ".join(host.name for host in plan.topology.hosts)
    switches = " ".join(switch.name for switch in plan.topology.switches)
    lines = [f"hosts     {hosts}", f"switches  {switches}"]
    lines = [line for long in lines for line in textwrap.wrap(long, 78, subsequent_indent=" " * 10)]
    if plan.clock == "virtual":
        lines.append(STILL)
    if plan.dilation != 1:
        lines.append(SLOW.format(plan.dilation))
    return "\n".join([*lines, LEAVE])


def _take_output(descriptor: int) -> None:
    for number in (1, 2):
        os.dup2(descriptor, number)


def _take_terminal(job: dict[str, Any]) -> None:
    """Make the terminal this process's own, so that Ctrl-C reaches it and not the lab's daemons."""
    os.setsid()
    terminal = os.open(job["terminal"], os.O_RDWR)
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    termios.tcsetwinsize(terminal, tuple(job["size"]))
    os.dup2(terminal, 0)
    _take_output(terminal)
    os.environ["TERM"] = job["term"]


if __name__ == "__main__":
    main(use)
