"""Launch files for tests."""
