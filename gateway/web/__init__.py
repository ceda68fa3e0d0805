"""The pages of a gateway: a process of its own that reads the gateway's database.

What a person asks for here is left in the database as a command, as the command line leaves it; the
gateway itself is never spoken to. So a page that hangs, or a browser that asks too much, cannot
slow it down. Nothing in this package is imported by a gateway.
"""
