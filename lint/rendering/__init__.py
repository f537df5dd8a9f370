"""Render charts and kustomizations with the user's own programs, and find where findings are from.

The authors of the repository may be hostile: `programs` says how little a program may do.
"""
