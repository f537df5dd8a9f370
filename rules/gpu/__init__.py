"""The GPUs that a pod requests, and other ways by which it gets access to GPUs."""
