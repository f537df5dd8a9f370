"""Tests of the webhook configurations, their check and removal."""
