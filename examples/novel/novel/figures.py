"""A figure that a recipe can name."""

from __future__ import annotations

import numpy as np
import pandas as pd

import perfmodel
from perfmodel.reports.figures import Chart, Figure, Layer, figure


@figure("novel-batching")
def batching(
    model: str = "llama-3.1-8b", on: str = "streaming-wafer", precision: str = "fp16", most: float = 256
) -> Figure:
    """Throughput and time a token of a wafer that streams its weights, over the requests that share a pass."""
    clients = np.unique(np.round(np.geomspace(1, most, 12)))
    answers = [perfmodel.predict(model, on=on, precision=precision, concurrency=float(count)) for count in clients]
    frame = pd.DataFrame(
        {
            "clients": clients,
            "throughput": [float(answer.output_tokens_per_s) for answer in answers],
        }
    )
    gain = frame.throughput.iloc[-1] / frame.throughput.iloc[0]
    return Figure(
        "Requests share a pass of the weights",
        f"{clients[-1]:g} requests together get {gain:.0f} times the tokens of one.",
        charts=(
            Chart(
                "novel-batching",
                "Output tokens a second over requests at once",
                frame,
                {"clients": "requests at once", "throughput": "output tokens [1/s]"},
                "clients",
                "throughput",
                layers=(Layer("line"), Layer("point")),
            ),
        ),
    )
