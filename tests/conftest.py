"""Shared by all tests; that it lies here puts this folder on the path, so that ``import programs`` works."""
