"""What rules know about other objects than the one that they evaluate."""
