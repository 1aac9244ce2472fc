#!/usr/bin/env bash
# Three of four GPUs use the first of four NICs; it is full while two of the others carry nothing.
# Options go to `testbed run`, as in: scripts/rail-imbalance.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run rail-imbalance "$@"
