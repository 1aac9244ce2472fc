"""Traffic of the lab: programs that run inside it. Standard library only, and no import of `testbed`."""
