"""Running a plan: `launch` from outside, `inside` and `probe` within the lab.

Nothing is imported here: the two halves must not load each other's modules.
"""
