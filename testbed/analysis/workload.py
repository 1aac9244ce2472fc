"""What a run's transfers stand for, as the summary says it: requests, their KV, and the rows left out.

Called by `testbed.analysis.summary`. Nothing where the transfers were given as they are.
"""

from __future__ import annotations

from typing import Any

from testbed.plan.model import Plan


def summarise_workload(plan: Plan) -> dict[str, Any]:
    """Return the summary's key `workload`, if it has one; `skipped` counts rows by their reason."""
    workload = plan.workload
    if workload is None:
        return {}
    return {
        "workload": {
            "source": workload.source,
            "requests": workload.requests,
            "prompt_tokens": workload.prompt_tokens,
            "output_tokens": workload.output_tokens,
            "kv_bytes": workload.kv_bytes,
            "scale": workload.scale,
            "skipped": {skipped.reason: skipped.rows for skipped in workload.skipped},
        }
    }
