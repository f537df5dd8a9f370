"""Render charts and kustomizations with the user's own programs, and find where findings are from.

Whoever wrote the repository may be hostile: `programs` says how little a program may do.
"""
