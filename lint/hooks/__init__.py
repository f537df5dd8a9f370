"""Git hooks: `gpuward hook`."""
