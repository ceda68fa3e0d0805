"""What nobody should send, by the million: `python -m benchmarks.fuzz.messages` and `.packets`."""
