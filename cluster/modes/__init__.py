"""`gpuward modes`: show the modes of namespaces, and change them in bulk."""
