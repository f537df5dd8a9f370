"""Why a pod is Pending: what keeps each node from taking it, as kube-scheduler decides it."""
