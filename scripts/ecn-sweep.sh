#!/usr/bin/env bash
# What K_min and K_max do to incast: 25 settings, three seeds each. Interrupted, it goes on where it ended.
# 16 MiB from each host instead of 64: the queue is what it is after a millisecond.
# Options go to `testbed sweep`, as in: scripts/ecn-sweep.sh --jobs 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" sweep incast \
  --vary fabric.queue.kmin=20kb,50kb,100kb,200kb,400kb \
  --vary fabric.queue.kmax=400kb,600kb,800kb,1600kb,3200kb \
  --set workload.requests.kv_bytes=16mib --seeds 3 --out runs/ecn-sweep "$@"
