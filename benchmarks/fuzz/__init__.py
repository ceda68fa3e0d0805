"""Malformed messages and packets, by the million: `benchmarks.fuzz.messages` and `.packets`."""
