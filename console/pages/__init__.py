"""The contents of the pages, as records: pure, from the same objects as the commands."""
