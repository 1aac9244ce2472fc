#!/usr/bin/env bash
# Eight hosts each write 128 KiB to one decode host by RDMA, less than they send within one round trip.
# Options go to `testbed run`, as in: scripts/roce-feedback-too-late.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run roce-feedback-too-late "$@"
