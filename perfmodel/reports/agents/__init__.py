"""The figures of the report on agents."""
