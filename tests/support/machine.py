"""A machine described by a test, for all who ask `testbed.machine`."""

from __future__ import annotations

from dataclasses import dataclass, field

from testbed.machine import Machine


@dataclass
class FakeMachine(Machine):
    """A machine with everything, less what a test takes away.

    `lacks` are programs, folders and modules; `answers` are the status and last line of the commands in
    which their key occurs.
    """

    lacks: set[str] = field(default_factory=set)
    answers: dict[str, tuple[int, str]] = field(default_factory=dict)
    version: tuple[int, ...] = (3, 11, 2)
    uid: int = 0
    memory: tuple[str | None, int] = ("/dev/shm", 4 << 30)

    @property
    def python_version(self) -> tuple[int, ...]:
        return self.version

    @property
    def effective_uid(self) -> int:
        return self.uid

    def which(self, program: str) -> str | None:
        return None if program in self.lacks else f"/usr/bin/{program}"

    def run(self, command: list[str]) -> tuple[int, str]:
        line = " ".join(command)
        whole = {"mininet": (0, "/usr/lib/mininet/net.py"), "TCP_CONGESTION": (0, "dctcp")}
        return next((answer for part, answer in (whole | self.answers).items() if part in line), (0, ""))

    def entries(self, folder: str) -> list[str]:
        return [] if folder in self.lacks else ["6.1.176"]

    def guest_memory_folder(self, need_bytes: int) -> str | None:
        return self.memory[0]

    def free_bytes(self, folder: str) -> int:
        return self.memory[1]

    def kernel_module(self, module: str, option: str) -> str | None:
        return None if module in self.lacks else "built in"
