"""Quotas on GPUs."""
