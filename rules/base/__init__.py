"""JSON, quantities, patterns and caches: nothing here knows Kubernetes objects or GPUs."""
