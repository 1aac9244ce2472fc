"""RoCEv2 in user space: packets, the reliable connection, DCQCN, and the loop that runs them over UDP
sockets."""
