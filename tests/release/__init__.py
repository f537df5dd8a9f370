"""Tests of the wheel, the image and the release."""
