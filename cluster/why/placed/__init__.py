"""What pods that have a node mean for those that have none."""
