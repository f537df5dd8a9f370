"""Shares of a GPU, and the systems that allocate them."""
