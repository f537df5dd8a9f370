"""Requests to API servers, and why one may fail."""
