#!/usr/bin/env bash
# Four hosts of one leaf send at once over slow rails; their uplinks are busy, but not what holds them up.
# Options go to `testbed run`, as in: scripts/rail-not-leaf.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run rail-not-leaf "$@"
