"""The certificate of a TLS server, which can be replaced while the server runs."""
