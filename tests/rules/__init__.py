"""Tests of the rules and the engine."""
