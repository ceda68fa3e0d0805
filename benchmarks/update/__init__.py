"""The time of one update beside its peers: `python -m benchmarks.update`."""
