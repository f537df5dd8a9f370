"""`gpuward audit`: evaluate what runs in a cluster by the rules, and report it."""
