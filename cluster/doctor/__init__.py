"""The command `gpuward doctor`: whether a cluster is fit for GPUs and for gpuward."""
