"""What programs in a cluster share: requests to API servers, events, the log, probes."""
