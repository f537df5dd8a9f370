"""Runs the controllers of GPU workloads beside gpuward: Kueue, JobSet, LWS, KubeRay and Trainer."""
