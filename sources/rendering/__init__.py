"""Render charts and kustomizations with the programs of the user."""
