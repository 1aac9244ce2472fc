"""The plan: everything that will happen in a run, computed without root before anything starts.

Nothing is imported here on purpose: `model`, `codec` and `dilation` are loaded inside the lab, where
each imported page is paid for; `build` and `ideal` (pydantic, numpy) are only used outside.
"""
