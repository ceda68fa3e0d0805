"""`opid-gateway init`: keys, passwords, the broker's rules and starting files of a new fleet.

Read `plan` (what is wanted), `initialise` (the order in which it is written, so that it can be
interrupted), `mosquitto_files`, `starting_files` and `group_list` (what is in the files), and
`file_writer` (how secrets reach the disk).
"""
