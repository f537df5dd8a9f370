"""The programs that keep something in a cluster as it should be, and what they share."""
