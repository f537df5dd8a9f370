"""What each page shows, as records: pure, from the same objects as the commands."""
