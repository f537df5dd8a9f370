"""Rules about the programs of a GPU platform: device plugins and webhooks."""
