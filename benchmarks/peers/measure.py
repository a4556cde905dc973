"""The question, the points and the clock that all peers share.

Standard library only: every peer runs in a virtual environment of its own.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable

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


def rate(work: Callable[[], object], count: int, seconds: float = 1.5) -> float:
    """Return answers per second of CPU time of work that gives ``count`` of them: its fastest run.

    CPU time and the fastest run are what other work on the machine disturbs least.  All compute in one thread, so that
    on an idle machine it is the time on the clock.
    """
    best = 0.0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        before = time.process_time()
        work()
        best = max(best, count / (time.process_time() - before))
    return best


def single(ask: Callable[[Question], object]) -> float:
    """Return the least CPU time of one warm question [s]."""
    repeats = 20
    return 1 / rate(lambda: [ask(QUESTION) for _ in range(repeats)], repeats, seconds=1.0)


def main(ask: Callable[[Question], Answer], count: int, sweep: Callable[[], int] | None = None) -> None:
    """Answer the question once, or with ``--speed`` print the answer and the speeds as JSON.

    Parameters
    ----------
    ask : callable
        Answers one question.
    count : int
        Points of the loop that is timed, so many that it takes some milliseconds.
    sweep : callable, optional
        What the peer has for many answers in one call; returns how many.
    """
    ttft, tpot = ask(QUESTION)
    found = {"ttft_s": ttft, "tpot_s": tpot}
    if "--speed" in sys.argv:
        asked = points(count)
        found |= {"single_s": single(ask), "per_second": rate(lambda: [ask(question) for question in asked], count)}
        if sweep is not None:
            calls = 100
            found["sweep_per_second"] = rate(lambda: [sweep() for _ in range(calls)], calls * sweep())
    print(json.dumps(found))
