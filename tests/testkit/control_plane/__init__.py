"""A real Kubernetes control plane on loopback addresses: built once, started per test session."""
