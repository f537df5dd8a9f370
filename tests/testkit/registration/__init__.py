"""Webhook configurations to check and remove, and servers that answer for the webhook."""
