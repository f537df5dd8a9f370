"""The certificate controller: makes, renews and publishes certificates in a cluster."""
