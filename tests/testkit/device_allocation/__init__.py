"""Random clusters with devices, and what Kubernetes' own device allocator says of them."""
