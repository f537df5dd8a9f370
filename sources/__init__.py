"""The input of gpuward: files, Git trees, charts and kustomizations, and the manifests in them."""

STANDARD_INPUT = "<stdin>"
"""What stands for the name of a file where the text is that of standard input."""
