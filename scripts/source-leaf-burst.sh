#!/usr/bin/env bash
# Eight prefill hosts of one leaf finish together; its two uplinks have half of their rate.
# Options go to `testbed run`, as in: scripts/source-leaf-burst.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run source-leaf-burst "$@"
