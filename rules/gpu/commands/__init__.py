"""Commands of containers, scripts and files: their words, and the programs that they start."""
