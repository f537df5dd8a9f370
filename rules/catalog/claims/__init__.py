"""Claims for devices, and what pods make of them."""
