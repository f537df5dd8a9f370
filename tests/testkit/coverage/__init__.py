"""The tables of docs/coverage.md, and how the tests observe the outcome of each cell."""
