"""What a pod asks of GPUs, and what it is given besides."""
