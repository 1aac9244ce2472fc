"""`python -m controller.main`: run the controller on os-ken or Ryu until it is ended.

    python -m controller.main --framework os-ken --document controller.json --ready ready.json --port 6653

It listens, gives every switch of the document its rules, and when all have confirmed them writes
ready.json: `{"framework", "version", "switches": {DPID: {"groups": n, "rules": m}}}`. If that cannot
be, ready.json holds `{"error": TEXT}` and the exit code is 2 (the document) or 3 (anything else).
Afterwards it only waits: a switch that connects again gets its rules again. It has no periodic
work, for in virtual time every wake-up costs, but with policy least-loaded, which polls the switches;
end it by SIGTERM.

os-ken is a dependency of the project. Ryu 4.34 builds only with an old setuptools and so lives in an
environment of its own, which requirements-ryu.txt says how to make:

    .venv-ryu/bin/python -m controller.main --framework ryu ...

The lab starts this as a process; nothing imports it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from controller.document import read_document
from controller.errors import ControllerError, SwitchError
from controller.framework import FRAMEWORKS, VARIABLE, Framework, listen_on, prepare
from controller.installation import Installation, ready_document
from controller.placement import Placement
from controller.rules import build_rules

TIMEOUT_S = 60.0
"""How long all switches have to connect and confirm, unless --timeout says otherwise."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the controller with command-line `arguments` and end the process."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="controller: %(levelname)s %(message)s")
    try:
        _run(options)
    except ControllerError as error:
        _give_up(options.ready, str(error), error.exit_code)
    except Exception as error:
        logging.exception("this is a defect of the controller")
        _give_up(options.ready, f"{type(error).__name__}: {error}", ControllerError.exit_code)


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write `data` to `path` at once: a reader sees the whole of it or nothing."""
    draft = path.with_name(path.name + ".part")
    draft.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    draft.replace(path)


def _give_up(ready: Path, message: str, exit_code: int) -> NoReturn:
    print(f"controller: {message}", file=sys.stderr, flush=True)
    write_json(ready, {"error": message})
    # The frameworks' threads cannot be stopped, so a plain exit would wait for them for ever.
    os._exit(exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="controller", description=__doc__.splitlines()[0])
    parser.add_argument("--framework", required=True, choices=list(FRAMEWORKS))
    parser.add_argument("--document", required=True, type=Path, help="controller.json to read")
    parser.add_argument("--ready", required=True, type=Path, help="ready.json to write")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=6653, help="TCP port to listen on (%(default)s)")
    parser.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT_S,
        help="seconds for all switches to confirm their rules (%(default)s)",
    )
    return parser


def _run(options: argparse.Namespace) -> NoReturn:
    options.ready.unlink(missing_ok=True)  # one of before would look like an answer
    document = read_document(options.document)
    installation = Installation(build_rules(document))
    placement = Placement(document) if document.least_loaded else None
    framework = FRAMEWORKS[options.framework]
    os.environ[VARIABLE] = framework.name  # `controller.app` is loaded by name and reads it
    prepare(framework)
    _check_port(options.host, options.port)
    listen_on(framework, options.host, options.port)
    outcomes = framework.module("lib.hub").Queue()
    _start(framework, installation=installation, placement=placement, outcomes=outcomes)
    _wait(framework, installation, outcomes, options)


def _check_port(host: str, port: int) -> None:
    # The framework binds in a thread of its own and would only log that it could not.
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ControllerError(f"cannot listen on {host}:{port}: {error.strerror}") from error


def _start(framework: Framework, **arguments: Any) -> None:
    manager = framework.module("base.app_manager").AppManager.get_instance()
    manager.load_apps(["controller.app"])
    contexts = manager.create_contexts()
    manager.instantiate_apps(**arguments, **contexts)


def _wait(
    framework: Framework, installation: Installation, outcomes: Any, options: argparse.Namespace
) -> NoReturn:
    empty = framework.module("lib.hub").QueueEmpty
    timeout: float | None = options.timeout
    while True:
        try:
            outcome = outcomes.get(timeout=timeout)
        except empty:
            raise SwitchError(f"after {timeout:g} s: {installation.missing()}") from None
        if isinstance(outcome, ControllerError):
            raise outcome
        timeout = None  # all switches are known: from here on it waits without a timer
        write_json(options.ready, ready_document(installation, framework.name, framework.version()))


if __name__ == "__main__":
    main()
