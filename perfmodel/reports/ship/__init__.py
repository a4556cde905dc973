"""The figures of SHIP (MLSys 2026) from the models, one subject a file."""
