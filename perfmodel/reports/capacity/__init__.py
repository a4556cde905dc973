"""The figures of the report on capacity."""
