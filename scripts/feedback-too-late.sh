#!/usr/bin/env bash
# Eight hosts each hand 128 KiB to one decode host at once, less than they send within one round trip.
# Options go to `testbed run`, as in: scripts/feedback-too-late.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run feedback-too-late "$@"
