"""The page: GPUs, findings, why a pod is Pending, and what a manifest would get. It only reads."""
