"""Ways to a GPU that the scheduler never hears of."""
