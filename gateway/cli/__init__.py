"""`opid-gateway` in parts: one module for each noun of the command line.

Read in this order: `parser` (what can be typed), `context` (what every verb begins with), `output`
(how it answers), `status`, `nodes`, `changes` and `sensors` (what is listed, and what is asked of
the running gateway), `wait` (until it is done), `export`, `init`, `accounts`, `keys`, `backup`,
`run`. The command line never writes records: it leaves a command in the database, and the one
gateway that serves it carries it out.
"""
