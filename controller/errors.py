"""Errors of the controller. They become the `error` of ready.json and the process's exit code.

ControllerError
|-- DocumentError   2  controller.json cannot be used
`-- SwitchError     3  a switch is unknown or missing, or refused a message
"""

from __future__ import annotations


class ControllerError(Exception):
    """Base of all deliberate errors; `exit_code` is the process's exit status."""

    exit_code = 3


class DocumentError(ControllerError):
    """controller.json is not what this controller understands."""

    exit_code = 2


class SwitchError(ControllerError):
    """A switch is unknown or missing, or it refused a message."""
