"""A node with the real kubelet, containerd and NVIDIA's container toolkit, without a GPU."""
