"""`python -m edge_opid.kernel`: which kernel this install runs."""

from edge_opid import kernel

print(kernel.name)  # noqa: T201
