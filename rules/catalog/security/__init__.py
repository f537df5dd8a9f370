"""Privileges that a pod with a GPU should not have."""
