"""`gpuward fix`: write fixes into files, or show them as a diff."""
