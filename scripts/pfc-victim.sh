#!/usr/bin/env bash
# A flow to an idle port waits behind pauses that another port causes.
# Options go to `testbed run`, as in: scripts/pfc-victim.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run pfc-victim "$@"
