"""The command `gpuward conformance`: which ways to a GPU are closed in a cluster, with proof."""
