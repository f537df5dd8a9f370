"""The webhook as a process, requests to it, and load on it."""
