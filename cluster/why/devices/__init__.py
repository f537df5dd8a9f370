"""Which devices a node can give to claims, as kube-scheduler's device allocator decides it."""
