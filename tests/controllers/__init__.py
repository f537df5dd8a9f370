"""gpuward beside the real controllers of GPU workloads, on a real control plane."""
