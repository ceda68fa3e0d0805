"""Many changes of sensors, the node beside its peers: `python -m benchmarks.changes`."""
