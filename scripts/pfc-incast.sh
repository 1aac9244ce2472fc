#!/usr/bin/env bash
# Eight prefill hosts finish together; on a lossless fabric the full port pauses them.
# Options go to `testbed run`, as in: scripts/pfc-incast.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run pfc-incast "$@"
