"""Mutation tests: put one fault after the other into the code, and see whether a test fails."""
