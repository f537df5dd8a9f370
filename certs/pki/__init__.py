"""Certificates and keys: make, parse and validate them. Pure."""
