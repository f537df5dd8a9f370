"""A second process for reviews that take long, so that others need not wait for them."""
