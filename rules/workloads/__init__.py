"""The places of pods in objects, and the types of their fields."""
