"""The table of docs/coverage.md, and how its cells are observed."""
