#!/usr/bin/env bash
# Each of eight prefill hosts hands its KV to a decode host of its own; nothing is in the way.
# Options go to `testbed run`, as in: scripts/baseline.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run baseline "$@"
