"""What pods get on a real node, with and without gpuward."""
