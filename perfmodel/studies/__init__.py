"""Sweeps, fits, comparisons and searches: NumPy code around the models."""
