"""Every error the testbed raises on purpose, and the exit code each one means.

TestbedError
|-- ExpectationError   1  the run is fine, an expectation of the scenario does not hold
|-- InputError         2  a scenario, option or file a person gave cannot be used
|-- LabError           3  the machine or the lab: something is missing, failed or differs from the plan
|   |-- MachineError      a kernel, package, module or permission is missing
|   |-- ReadbackError     the lab is not what the plan asked for
|   `-- DeadlineError     the run did not end in its virtual or real time
`-- MeasurementError   4  the run ended, but its numbers must not be believed

A message is one line: where, what was found, what was expected, what to do. `testbed --debug` adds the
traceback. Anything else that escapes is a defect of the testbed.
"""

from __future__ import annotations


class TestbedError(Exception):
    """Base of all deliberate errors; `exit_code` is the command's exit status."""

    exit_code = 3


class ExpectationError(TestbedError):
    """An expectation written in the scenario does not hold."""

    exit_code = 1


class InputError(TestbedError):
    """What a person gave cannot be used; nothing was started."""

    exit_code = 2


class LabError(TestbedError):
    """The machine cannot run the lab, or the lab failed."""

    exit_code = 3


class MachineError(LabError):
    """A kernel, package, module or permission is missing; the message names the remedy."""


class ReadbackError(LabError):
    """What was read back from the lab differs from the plan; the message has both values."""


class DeadlineError(LabError):
    """The run reached its deadline in virtual or in real time and was ended."""


class MeasurementError(TestbedError):
    """The run ended but the measurement is not valid."""

    exit_code = 4
