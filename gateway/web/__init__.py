"""The pages of a gateway: a separate process that reads the gateway's database.

What a person asks for is left in the database as a command, as the command line does it; these
pages never talk to the gateway itself. So a page that hangs, or a browser that asks too much,
cannot slow it down. Nothing in this package is imported by a gateway.
"""
