"""Queues and groups in which pods wait before kube-scheduler looks at nodes for them."""
