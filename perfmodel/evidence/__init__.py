"""What stands behind the numbers: fits on committed data, and the comparison with measurements."""
