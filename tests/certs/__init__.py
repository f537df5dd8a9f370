"""Tests of certificates and of their controller."""
