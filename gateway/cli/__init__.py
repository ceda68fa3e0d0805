"""`opid-gateway` in parts: one module for each noun of the command line.

Read in this order: `arguments` (what can be typed), `desk` (what every verb begins with), `screen`
(how it answers), `nodes` and `changes` (what is listed), `announce` and `waiting` (what is asked of
the running gateway), `export`, `serving`. The command line never writes records: what an operator
wants done is left in the database as a command, and the one gateway that serves it obeys.
"""
