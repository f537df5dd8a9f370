"""The one package that talks to a Kubernetes API server."""
