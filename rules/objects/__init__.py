"""Read-only views of the objects that rules judge: pods, their containers, quotas."""
