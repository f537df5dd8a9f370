"""How a pod requests GPUs."""
