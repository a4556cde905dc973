"""Figures of the cost report."""
