"""A node beside a bare paho subscriber: `python -m benchmarks.node`."""
