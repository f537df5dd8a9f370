"""The devices that a node can give to claims, as kube-scheduler's allocator decides it."""
