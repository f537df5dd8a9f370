"""The reasons why a pod is Pending, node by node, as kube-scheduler decides it."""
