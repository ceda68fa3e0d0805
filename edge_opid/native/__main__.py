"""`python -m edge_opid.native`: what this install computes with, compiled or numpy."""

from edge_opid import native

print(native.name)  # noqa: T201
