"""Measurements: `benchmarks.lint`, `benchmarks.engine` and `benchmarks.admission`."""
