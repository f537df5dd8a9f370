"""Servers that may answer instead of the webhook."""
