"""The sources of the commands' objects: an API server, or files."""
