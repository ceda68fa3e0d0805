"""`python -m edge_opid.native`: which kernel this install runs."""

from edge_opid import native as kernel

print(kernel.name)  # noqa: T201
