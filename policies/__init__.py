"""Policies and profiles: the one place that reads and checks their files."""
