"""Baselines: files that list known findings, so that only new ones fail."""
