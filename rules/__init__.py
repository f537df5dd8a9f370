"""The rules: what is wrong with a GPU manifest, and how to fix it.

Everything here is pure: no files, no clock, no network, no threads. docs/architecture.md shows how
the packages work together.
"""
