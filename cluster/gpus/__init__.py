"""The command `gpuward gpus`: which GPUs a cluster has, who has them, and which are free."""
