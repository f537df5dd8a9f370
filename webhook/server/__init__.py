"""HTTP over TLS: connections, limits, handlers, start and stop."""
