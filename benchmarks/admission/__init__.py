"""The webhook under load, next to a baseline: `python -m benchmarks.admission --help`."""
