"""The OpenFlow controller: installs a fabric's forwarding rules once, before any traffic.

It is a process of its own (`python -m controller.main`) and imports nothing of `testbed`. Pure parts:
`document` (what the lab hands over), `rules` (what each switch gets), `wire` (bytes no framework can
encode), `ecmp_hash` (which bucket Open vSwitch will choose), `prediction` (a flow's spine by the rules),
`placement` (a flow's spine by the load) and `installation` (who has confirmed what).
Only `framework`, `app` and `main` know os-ken or Ryu, and import them when they run.
"""
