"""Every figure we publish comes from a command here: `python -m benchmarks.NAME`."""
