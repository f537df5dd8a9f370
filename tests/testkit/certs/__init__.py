"""A cluster in memory for the certificate controller."""
