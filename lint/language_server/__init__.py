"""`gpuward lsp`: diagnostics, fixes, explanations and completion in editors."""
