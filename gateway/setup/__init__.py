"""`opid-gateway init`: keys, passwords, the broker's rules and starting files of a new fleet.

Read `plan` (what is wanted), `initialise` (the order in which it is written, so that it can be
interrupted), `mosquitto_files` and `starting_files` (what is in them), `scribe` (how secrets reach
the disk).
"""
