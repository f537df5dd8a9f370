"""Read-only views of the objects that rules evaluate: pods, their containers, quotas."""
