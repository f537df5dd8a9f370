"""Render the chart, install it, and run its pods."""
