"""Facts: of GPU platforms (profiles) and of one evaluation (the context)."""
