"""Pages of docs/reference that are written from the code, so that they cannot grow old.

`make reference` writes them, and a test compares. What a key, an option, a message, a log line or
a metric means stands where it is defined: change it there, and write the pages anew.
"""
