"""Read and validate the files of policies and profiles."""
