#!/usr/bin/env bash
# Eight prefill hosts finish together and hand their KV to one decode host.
# Options go to `testbed run`, as in: scripts/incast.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run incast "$@"
