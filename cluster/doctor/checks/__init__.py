"""The checks of `gpuward doctor`: one module for each, facts in, rows out."""
