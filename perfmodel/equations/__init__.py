"""Closed forms, one subject a file.  Importing this package registers all of them."""

from perfmodel.equations import (
    caching,
    collectives,
    disaggregation,
    memory,
    metrics,
    pipeline,
    power,
    queueing,
    reliability,
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
    "disaggregation",
    "memory",
    "metrics",
    "pipeline",
    "power",
    "queueing",
    "reliability",
    "roofline",
    "serving",
    "speculative",
    "tco",
    "transformer",
    "yield_cost",
]
