"""Where a pod with a GPU is placed."""
