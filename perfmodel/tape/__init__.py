"""A traced calculation as one numbered list of operations, and what runs it: NumPy, C, any language, derivatives."""
