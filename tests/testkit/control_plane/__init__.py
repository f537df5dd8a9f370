"""A real Kubernetes control plane on loopback: built once, started per test session."""
