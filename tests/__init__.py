"""Tests of gpuward."""
