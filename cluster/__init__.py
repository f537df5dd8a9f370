"""Commands that look at a cluster that runs: what is there, and what is wrong with it."""
