"""Quotas for GPUs."""
