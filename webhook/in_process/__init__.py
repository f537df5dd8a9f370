"""The policy as objects that API servers evaluate themselves, without the webhook."""
