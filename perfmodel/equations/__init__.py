"""Closed forms, one subject a file.  Importing this package registers all of them."""

from perfmodel.equations import collectives, memory, pipeline, roofline, serving, transformer

__all__ = ["collectives", "memory", "pipeline", "roofline", "serving", "transformer"]
