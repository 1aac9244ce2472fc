"""The lab: brings a plan up with Mininet, Open vSwitch and the controller, and reads it back.

Two kinds of modules live here. Those that start a lab from outside (`kernels`, `uml`, `native`) know
nothing of its inside. The others run inside, in a guest kernel or a set of namespaces of their own,
and import little, because there every imported page costs time.
"""
