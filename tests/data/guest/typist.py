"""Types at the prompt of a native lab as a person at a terminal does: `typist.py SCENARIO`.

Prints what the screen showed for each command, and how it ended, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.support.terminal import terminal

PROMPT = "mininet> "
FIRST_S = 120
"""Until the lab is up."""


def main() -> None:
    """Bring the lab up and type."""
    command = [
        sys.executable, "-m", "testbed.cli", "shell", sys.argv[1], "--backend", "native",
        "--set", "dilation=1000",
    ]  # fmt: skip
    seen = {}
    with terminal(command, Path.cwd()) as person:
        seen["first"] = person.until(PROMPT, FIRST_S)
        for keys in ("nod\t\n", "p1 ping -c 2 d1\n", "sh stty size\n", "sh tty\n"):
            person.type(keys)
            seen[keys] = person.until(PROMPT)
        # Control-C ends what runs, not the lab.
        person.type("p1 ping d1\n")
        person.until("icmp_seq=3 ")
        person.type("\x03")
        seen["interrupted"] = person.until(PROMPT)
        person.type("\x04")
        seen["status"] = person.ended()
    print(json.dumps(seen, indent=1))


if __name__ == "__main__":
    main()
