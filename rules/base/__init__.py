"""JSON, quantities, patterns and caches; independent of Kubernetes objects and GPUs."""
