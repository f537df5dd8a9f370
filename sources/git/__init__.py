"""Git repositories, read without executing anything that they configure."""
