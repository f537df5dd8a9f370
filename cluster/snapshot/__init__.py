"""One picture of a cluster for all commands: what was read of it, and what could not be."""
