#!/usr/bin/env bash
# What K_min and K_max do to incast: 25 settings, three seeds each. Interrupted, it goes on where it ended.
# 16 MiB from each host, because the queue is what it is after a millisecond; 5 us for each link, because over
# short ones eight windows of two packets fill the path and no threshold can cost throughput.
# Options go to `testbed sweep`, as in: scripts/ecn-sweep.sh --jobs 2
exec "$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed" sweep incast \
  --vary fabric.queue.kmin=5kb,20kb,50kb,100kb,200kb \
  --vary fabric.queue.kmax=200kb,400kb,800kb,1600kb,3200kb \
  --set fabric.queue.pmax=1 --set workload.requests.kv_bytes=16mib \
  --set fabric.host_link.delay=5us --set fabric.fabric_link.delay=5us \
  --seeds 3 --out runs/ecn-sweep "$@"
