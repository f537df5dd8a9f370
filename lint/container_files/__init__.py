"""Lint files that build images or start containers without Kubernetes: `--also`."""
