"""All that is made from a record and kept in it: the summary, the tables and the page.

Judges nothing. Called by the command line, after a run and for `testbed report`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.analysis import transfer_losses, write_outputs
from testbed.errors import MeasurementError
from testbed.record.files import refused
from testbed.record.reader import Record
from testbed.record.writer import lock_record
from testbed.report.page import write_report


def make_outputs(folder: Path) -> tuple[Record, dict[str, Any]]:
    """Write everything that follows from the record in `folder` and return the record with its summary.

    Raises InputError when the folder is no record, LabError when a run begins there or it cannot be written,
    MeasurementError when too much of it is damaged.
    """
    record = Record.open(folder)
    try:
        with lock_record(folder):  # or a run that begins now would take the record away
            losses = transfer_losses(record)
            summary = write_outputs(record, losses)
            write_report(record, summary, losses)
    except OSError as error:
        raise refused(error.filename or folder, error) from error
    except Exception as error:
        if not record.problems:
            raise  # a defect of the analysis
        first = record.problems[0]
        raise MeasurementError(f"{folder}: the record is damaged beyond a report: {first}") from error
    return record, summary
