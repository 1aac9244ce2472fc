#!/usr/bin/env bash
# One prefill host sends to one decode host whose slow landing pauses the fabric.
# Options go to `testbed run`, as in: scripts/pfc-landing.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run pfc-landing "$@"
