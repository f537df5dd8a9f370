"""gpuward: the admission controller and policy linter for GPUs on Kubernetes."""

__version__ = "0.1.0"
