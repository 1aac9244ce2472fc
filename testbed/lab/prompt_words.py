"""What the two sides of `testbed shell` have agreed on: names of files and a mark in the output."""

from __future__ import annotations

STEP = "prompt"
"""The step of the progress in which the lab is the person's."""

COMMANDS = "commands"
"""File in the job's folder: commands to run, where no terminal is the lab's."""

LOG = "prompt"
"""What those commands print goes to the record's log of this name."""

HERE = "\033]7717;prompt\007"
"""Printed with the prompt whenever it waits for a line; taken out of the output outside the lab.
An operating system command that no terminal knows, so that it does no harm where it is not taken out."""
