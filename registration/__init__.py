"""The webhook configurations: what they contain, whether they work, how to remove them."""
