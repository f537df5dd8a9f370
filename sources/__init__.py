"""What gpuward reads: files, Git trees, charts and kustomizations, and the manifests in them."""
