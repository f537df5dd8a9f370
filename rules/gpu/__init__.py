"""What a pod requests of GPUs, and what else gives it access to GPUs."""
