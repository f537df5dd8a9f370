"""The nodes on which the scheduler may put a pod: node affinity, GPU nodes, tolerations."""
