"""The results of a run as records, and the reports about them in every format."""
