"""The question, the points and the clock that all peers share.

Standard library only: every peer runs in a virtual environment of its own.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

#: Requests at once, prompt and output tokens, tensor-parallel degree.
Question = tuple[int, int, int, int]
#: TTFT and TPOT [s].
Answer = tuple[float, float]

#: Llama-3.1-70B in BF16 on eight H100 SXM, one request at a time: what every peer can answer.
QUESTION: Question = (1, 2048, 256, 8)

#: Shape of Llama-3.1-70B, for peers that do not ship it.
LLAMA = {
    "model_type": "llama",
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


def points(count: int, seed: int = 0) -> list[Question]:
    """Return scattered questions, all of which fit in the memory."""
    draw = random.Random(seed)
    return [
        (draw.randint(1, 64), draw.randint(100, 4096), draw.randint(16, 1024), draw.choice((4, 8)))
        for _ in range(count)
    ]


def rate(evaluate: Callable[[Any], object], asked: Sequence[Any], seconds: float = 2.0) -> float:
    """Return answers per second where ``asked`` is asked at a time: the best of three runs of ``seconds`` each."""
    evaluate(asked)
    best = 0.0
    for _ in range(3):
        done, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds:
            evaluate(asked)
            done += len(asked)
        best = max(best, done / spent)
    return best


def single(ask: Callable[[Question], object]) -> float:
    """Return the median time of one warm question [s]."""
    taken = []
    start = time.perf_counter()
    while time.perf_counter() - start < 1.0 or len(taken) < 5:
        before = time.perf_counter()
        ask(QUESTION)
        taken.append(time.perf_counter() - before)
    return statistics.median(taken)


def main(ask: Callable[[Question], Answer], count: int, sweep: Callable[[], int] | None = None) -> None:
    """Answer the question once, or with ``--speed`` print the answer and the speeds as JSON.

    Parameters
    ----------
    ask : callable
        Answers one question.
    count : int
        Points of the loop that is timed.
    sweep : callable, optional
        What the peer has for many answers in one call; returns how many.
    """
    ttft, tpot = ask(QUESTION)
    found = {"ttft_s": ttft, "tpot_s": tpot}
    if "--speed" in sys.argv:

        def loop(asked: Sequence[Question]) -> None:
            for question in asked:
                ask(question)

        found |= {"single_s": single(ask), "per_second": rate(loop, points(count))}
        if sweep is not None:
            found["sweep_per_second"] = rate(lambda _: [sweep() for _ in range(100)], range(100 * sweep()))
    print(json.dumps(found))
