"""The signals that ask the program to end, as an exception at a moment when it can be ended in order.

Within `termination`, Control-C, SIGTERM and SIGHUP raise `Aborted`, once: what follows it does not disturb
the clearing away. Within `held` they wait until its end, for what must not be left half done; within `heard`,
inside that, they do not. All of it concerns the main thread, as Python has it, and has no effect in another.
Nothing here ends a process; how one ended is put into words here. Called by the command line and by all that
makes a record, a child or a temporary folder.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

OUT_OF_MEMORY = (
    "as a machine does that runs out of memory (dmesg, or its cgroup's memory.events, would say so): "
    "free memory, or run less at once"
)
"""What is to be said of a SIGKILL that nobody admits to."""

AGAIN_S = 0.01
"""So long after an `Aborted` was lost it is raised again."""


class Aborted(KeyboardInterrupt):
    """The system or a person asked the program to end, by the signal `number`."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@dataclass
class _State:
    """What of the signals the program has come to: there is one process, so there is one state."""

    installed: bool = False
    holding: bool = False
    waiting: int | None = None
    raised: bool = False


_state = _State()


@contextmanager
def termination(*, last: bool = False) -> Iterator[None]:
    """Let the signals raise `Aborted` in the block; in another block like it, that one does.

    A signal that the program was started to ignore, as by `nohup`, stays ignored. With `last`, nothing comes
    after the block but the program's end, which no signal may change any more.
    """
    if _state.installed or not _in_main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    hook = sys.unraisablehook
    _state.installed = True
    try:
        sys.unraisablehook = lambda lost: _again(lost, hook)
        for number, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, _on_signal)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if last else handler)
        sys.unraisablehook = hook
        _state.installed, _state.waiting, _state.raised = False, None, False


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _on_signal(number: int, _frame: FrameType | None) -> None:
    _state.waiting = _state.waiting or number
    if not _state.holding:
        obey()


def obey() -> None:
    """Raise `Aborted` now when a signal has come, unless it has been: then it is being obeyed."""
    if _state.waiting is not None and not _state.raised:
        _state.raised = True
        raise Aborted(_state.waiting)


def _again(lost: sys.UnraisableHookArgs, otherwise: Callable[[sys.UnraisableHookArgs], object]) -> None:
    """Raise once more an `Aborted` that came in a destructor or a callback, which nothing can leave."""
    if not isinstance(lost.exc_value, Aborted):
        otherwise(lost)
        return
    _state.raised = False
    main, number = threading.main_thread().ident, lost.exc_value.number
    assert main is not None
    threading.Timer(AGAIN_S, signal.pthread_kill, (main, number)).start()


@contextmanager
def held() -> Iterator[None]:
    """Let a signal wait until the end of the block, and be obeyed then, however it ends."""
    if not _in_main_thread():
        yield
        return
    before, _state.holding = _state.holding, True
    try:
        yield
    finally:
        _state.holding = before
        if not before:
            obey()


@contextmanager
def heard() -> Iterator[None]:
    """Let a signal be obeyed at once in the block, though it is inside a `held` one."""
    if not _in_main_thread():
        yield
        return
    before, _state.holding = _state.holding, False
    try:
        obey()
        yield
    finally:
        _state.holding = before


def how_ended(status: int | None) -> str:
    """Say in words how a process ended, by its return code as `subprocess` gives it."""
    if status == -signal.SIGKILL:
        return f"was killed by SIGKILL, {OUT_OF_MEMORY}"
    if status is not None and status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


@contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """Give a temporary folder that is gone after the block, whatever ends it."""
    with held():
        folder = Path(tempfile.mkdtemp(prefix=f"testbed-{purpose}-"))
        try:
            with heard():
                yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
