"""Which stretch of the path held up the first token: emulated KV-cache transfers, measured and explained.

Subpackages import in one direction: `cli` above `run` and `report`, then `lab` and `checks`,
`analysis`, `record`, `plan`, `scenario`, `units`, `errors`.
"""
