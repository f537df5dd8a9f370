"""The input of gpuward: files, Git trees, charts and kustomizations, and the manifests in them."""
