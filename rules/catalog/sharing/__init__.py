"""Shares of a GPU and the systems that hand them out."""
