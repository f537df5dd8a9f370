"""What a run has found, as records, and the reports about it in every format."""
