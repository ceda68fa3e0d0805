"""Pages of docs/reference generated from the code, so that they stay correct.

`make reference` writes them, and a test compares. The meaning of a key,
option, message, log line or metric is written where it is defined: change it there, and generate
the pages again.
"""
