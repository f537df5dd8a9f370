"""Rules about nodes, and about what makes them."""
