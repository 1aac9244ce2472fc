"""Many runs held against something: what a scenario expects, a golden, another set of runs, other settings.

`check` runs scenarios and judges them, `compare` sets two records or sets of records side by side, `sweep`
runs a grid. Runs are made by `testbed.run.many`; all judging is a function of summaries. Called by the
command line only.
"""
