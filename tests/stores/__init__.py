"""Real object stores for tests."""
