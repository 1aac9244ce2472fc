#!/usr/bin/env bash
# Eight senders pace themselves at 10 Gbit/s; the network is not what they wait for.
# Options go to `testbed run`, as in: scripts/network-idle.sh --seed 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" run network-idle "$@"
