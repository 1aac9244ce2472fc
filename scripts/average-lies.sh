#!/usr/bin/env bash
# A second of scattered transfers with one burst of eight at half time; averages show nothing.
# Options go to `testbed run`, as in: scripts/average-lies.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run average-lies "$@"
