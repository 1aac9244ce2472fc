#!/usr/bin/env bash
# Every decode host takes KV into its GPU at 40 Gbit/s, whatever the network delivers.
# Options go to `testbed run`, as in: scripts/slow-landing.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run slow-landing "$@"
