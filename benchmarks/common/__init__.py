"""What several benchmarks share: verdicts, data, cells, statistics, plots, pages."""
