"""The report: a record as one HTML page for a person, opened without a network.

`page` writes it, `report.html.j2`, `report.css` and `report.js` are its text, look and hover. The other
modules each prepare one part of the page. Nothing here measures or judges; `testbed.analysis` does.
"""

from testbed.report.page import render_report, write_report

__all__ = ["render_report", "write_report"]
