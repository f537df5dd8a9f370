"""Tests of `gpuward mcp`, by the client of the official SDK."""
