"""On which nodes a pod with a GPU is placed."""
