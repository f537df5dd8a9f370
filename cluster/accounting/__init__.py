"""The account of a cluster's GPUs: what nodes offer, who has which of it, and what is free."""
