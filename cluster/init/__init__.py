"""`gpuward init`: write a policy and values of the chart that fit a cluster."""
