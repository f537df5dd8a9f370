"""Tests of the controller for GpuExceptions."""
