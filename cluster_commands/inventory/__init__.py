"""`gpuward inventory`: keep what the webhook knows of other objects of the cluster."""
