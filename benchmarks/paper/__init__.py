"""The paper's experiments, beside the paper's own figures: `python -m benchmarks.paper`."""
