#!/usr/bin/env bash
# Round-robin placement sends half of all requests to decode hosts behind one spine link.
# Options go to `testbed run`, as in: scripts/scheduler-skew.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run scheduler-skew "$@"
