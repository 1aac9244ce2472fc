#!/usr/bin/env bash
# Eight flows from eight leaves to one leaf have eight spines to choose from, by hash.
# Options go to `testbed run`, as in: scripts/ecmp-collision.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run ecmp-collision "$@"
