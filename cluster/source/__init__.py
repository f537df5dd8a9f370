"""Where the commands get their objects: from an API server, or from files."""
