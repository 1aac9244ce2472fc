"""Mininet's prompt in a running lab: typed by a person, or commands from a list.

A module of its own beside `mininet_net`, because a lab that is only measured does not pay for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from mininet.cli import CLI
from mininet.log import output

from testbed.lab.prompt_words import HERE

_NO_IPERF = "there is iperf3 here; for example: {0} iperf3 -s -1 -D, then: {1} iperf3 -c {0} -n 100M\n"


class Prompt(CLI):
    """Mininet's command line, with a look at the lab's parts after each command."""

    prompt = f"\001{HERE}\002mininet> "  # readline takes \001...\002 as taking no room

    def __init__(self, net: Any, check: Callable[[], None], commands: Sequence[str] | None) -> None:
        """Run the prompt on standard input, or the `commands`, to its end.

        Raises what `check` raises once a part of the lab has died.
        """
        self._check = check
        self._commands = commands
        super().__init__(net)

    def run(self) -> None:
        """Type or be typed to, until `exit`."""
        if self._commands is None:
            super().run()
            return
        for line in self._commands:
            output(f"mininet> {line}\n")
            if self.postcmd(self.onecmd(line), line):
                return

    def postcmd(self, stop: bool, line: str) -> bool:
        """Look whether the lab is still whole."""
        self._check()
        return stop

    def completenames(self, text: str, *ignored: Any) -> list[str]:
        """Complete the names of nodes as well as of commands."""
        return [*super().completenames(text, *ignored), *self.completedefault(text)]

    def completedefault(self, *words: Any) -> list[str]:
        """Complete the names of nodes."""
        return sorted(name for name in self.mn if name.startswith(words[0]))

    def do_iperf(self, line: str) -> None:
        """Say how it is done here: Mininet means iperf 2, which there is none of."""
        hosts = [host.name for host in self.mn.hosts]
        output(_NO_IPERF.format(hosts[-1], hosts[0]))

    do_iperfudp = do_iperf


def run_prompt(net: Any, check: Callable[[], None], commands: Sequence[str] | None) -> None:
    """Run Mininet's prompt to its end: of standard input, a terminal, or of `commands`.

    Raises what `check`, called after each command, raises.
    """
    if commands is not None:
        _quiet_input()
    Prompt(net, check, commands)


def _quiet_input() -> None:
    """Make standard input a pipe in which nothing ever comes.

    While a command runs, Mininet passes on what is typed; at the end of a file it would ask without end.
    """
    read, _ = os.pipe()
    os.dup2(read, 0)
