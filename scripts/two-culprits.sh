#!/usr/bin/env bash
# Four hosts send over slow rails to a decode host each, four others all to d5.
# Options go to `testbed run`, as in: scripts/two-culprits.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run two-culprits "$@"
