"""Where an object keeps its pods, and whether its fields have the right types."""
