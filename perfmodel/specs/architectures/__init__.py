"""Architectures by their ``model_type``: the table says which mixer and which block each layer has."""
