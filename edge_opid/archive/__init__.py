"""Years of readings at once: from a table to the summary that a node would have sent.

`gather` needs NumPy alone for a dict of arrays, and pyarrow for a table that speaks Arrow. A node
loads none of this.
"""

from edge_opid.archive.gather import Gathered, gather
from edge_opid.archive.sums import Gatherer, Sums

__all__ = ["Gathered", "Gatherer", "Sums", "gather"]
