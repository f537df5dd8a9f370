"""Ways to get a GPU that the scheduler does not count."""
