"""Public doubles for tests and simulators: a broker and a link in memory.

A node never loads them.
"""

from edge_opid.testing.memory_broker import MemoryBroker
from edge_opid.testing.memory_link import MemoryLink

__all__ = ["MemoryBroker", "MemoryLink"]
