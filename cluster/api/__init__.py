"""Requests to API servers: connection, proxies, errors, events, and reviews of access."""
