"""Tests that start containers by NVIDIA's container runtime."""
