"""How a pod asks for GPUs."""
