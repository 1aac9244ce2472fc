"""The controller's process inside the lab: started with the rules' document, awaited by its answer."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.document import controller_document
from testbed.errors import LabError
from testbed.lab.mininet_net import CONTROLLER_PORT
from testbed.lab.system import wait_until
from testbed.plan.model import Plan

READY_TIMEOUT_S = 120


@dataclass(frozen=True)
class ControllerProcess:
    """The running controller and the file in which it reports."""

    process: subprocess.Popen[bytes]
    ready: Path

    def wait_ready(self) -> dict[str, Any]:
        """Wait until every switch has confirmed its rules; return the controller's report.

        Raises LabError with the controller's own words when it gave up or ended, DeadlineError
        when it says nothing.
        """
        wait_until(self._has_answered, READY_TIMEOUT_S, "the controller to confirm all rules", step_s=0.02)
        if not self.ready.exists():
            raise self._ended()
        report: dict[str, Any] = json.loads(self.ready.read_text())
        if "error" in report:
            raise LabError(f"controller: {report['error']}")
        return report

    def _has_answered(self) -> bool:
        return self.ready.exists() or self.process.poll() is not None

    def check(self) -> None:
        """Raise LabError when the controller has ended."""
        if self.process.poll() is not None:
            raise self._ended()

    def _ended(self) -> LabError:
        status = self.process.returncode
        return LabError(f"the controller ended with status {status}; see logs/controller.log")

    def stop(self) -> None:
        """End the controller."""
        self.process.terminate()
        self.process.wait()


def start_controller(plan: Plan, python: str, work_dir: Path, log_dir: Path) -> ControllerProcess:
    """Start the controller under `python`, the interpreter that has the plan's framework."""
    document, ready = work_dir / "controller.json", work_dir / "controller-ready.json"
    document.write_text(json.dumps(controller_document(plan), indent=1))
    own_kernel = plan.backend != "native"
    command = [
        python, "-m", *(["testbed.lab.at_once"] if own_kernel else []), "controller.main",
        "--framework", plan.framework,
        "--document", str(document),
        "--ready", str(ready),
        "--port", str(CONTROLLER_PORT),
    ]  # fmt: skip
    with (log_dir / "controller.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=dict(os.environ)
        )
    return ControllerProcess(process, ready)
