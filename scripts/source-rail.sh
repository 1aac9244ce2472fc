#!/usr/bin/env bash
# Every prefill GPU reaches its NIC at 40 Gbit/s; NICs and fabric run at 100 and more.
# Options go to `testbed run`, as in: scripts/source-rail.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run source-rail "$@"
