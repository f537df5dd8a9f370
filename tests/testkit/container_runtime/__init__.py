"""NVIDIA's container runtime, run on this machine without a GPU to see what containers get."""
