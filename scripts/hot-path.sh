#!/usr/bin/env bash
# Four flows from four leaves to one leaf are pinned to spine1, whose link down they must share.
# Options go to `testbed run`, as in: scripts/hot-path.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run spine-hot-path "$@"
