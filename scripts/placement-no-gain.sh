#!/usr/bin/env bash
# Prefill decides the first token and the network is idle, so placement has nothing to gain.
# Options go to `testbed run`, as in: scripts/placement-no-gain.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run placement-no-gain "$@"
