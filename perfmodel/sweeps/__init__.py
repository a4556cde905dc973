"""Sweeps: numeric axes broadcast, categories loop; partitions in a folder, on processes or a cluster."""
