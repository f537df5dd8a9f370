"""The console for tests."""
