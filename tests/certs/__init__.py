"""Tests of certificates and their controller."""
