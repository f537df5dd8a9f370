"""Tests of the console: its pages, and how they are in a browser."""
