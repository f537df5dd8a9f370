"""The devices that pods get on a real node, with and without gpuward."""
