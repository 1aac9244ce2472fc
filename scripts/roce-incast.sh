#!/usr/bin/env bash
# Eight prefill hosts hand their KV to one decode host by RDMA WRITE with DCQCN.
# Options go to `testbed run`, as in: scripts/roce-incast.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run roce-incast "$@"
