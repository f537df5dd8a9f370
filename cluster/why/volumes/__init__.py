"""The persistent volumes of a pod, and the nodes that can use them."""
