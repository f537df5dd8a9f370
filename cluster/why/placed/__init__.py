"""The effects of pods that have a node on those that have none."""
