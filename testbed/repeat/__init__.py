"""The same run again: whether it comes out the same, and how runs of other seeds spread.

`run --twice` and `rerun` compare bytes, `run --seeds` compares seeds. Called by the command line only.
"""
