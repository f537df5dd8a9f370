"""Steps and fixtures of the end-to-end tests."""
