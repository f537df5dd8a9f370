"""Evaluate the rules about a manifest, and make their fixes."""
