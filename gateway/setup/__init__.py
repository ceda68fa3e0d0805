"""`opid-gateway init`: keys, passwords, the broker's rules and starting files of a new fleet.

Read `plan` (what is wanted), `initialise` (the order in which it is written, so that it can be
interrupted), `mosquitto_files`, `other_broker`, `starting_files` and `group_list` (what is in the
files), `file_writer` (how secrets reach the disk) and `owners` (whose they become).
"""
