"""Closed forms, one subject a file.  Importing this package registers all of them."""

from perfmodel.equations import (
    caching,
    collectives,
    memory,
    metrics,
    pipeline,
    power,
    roofline,
    serving,
    speculative,
    tco,
    transformer,
    yield_cost,
)

__all__ = [
    "caching",
    "collectives",
    "memory",
    "metrics",
    "pipeline",
    "power",
    "roofline",
    "serving",
    "speculative",
    "tco",
    "transformer",
    "yield_cost",
]
