"""Targets of fuzzing: docs/fuzzing.md."""
