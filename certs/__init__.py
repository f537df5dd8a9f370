"""Certificates: the serving side that loads them, and the controller that makes them."""
