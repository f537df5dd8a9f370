"""What a TLS server serves, replaced while it runs."""
