#!/usr/bin/env bash
# One prefill host sends to one decode host whose landing is slow.
# Options go to `testbed run`, as in: scripts/one-sender-landing.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run one-sender-landing "$@"
