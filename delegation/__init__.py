"""The controller for GpuExceptions: which of them the policy accepts, and who is told."""
