"""ridgepoint: a Rust core; one request at a time, collectives are not modelled, so that eight GPUs are ideal ones."""

import re

import ridgepoint
from measure import main

MODEL, GPU = "llama-3-70b", "h100-80gb"


def ask(question):
    _, prompt, output, tp = question
    written = ridgepoint.fit(MODEL, GPU, count=tp, dtype="fp16", ctx=prompt + output, prompt=prompt, as_json=True)
    # Only the answer itself is parsed: reading all of the JSON would cost more than the prediction.
    ttft = re.search(r'"ttft_s": \{"low": \S+, "best": (\S+),', written)
    rate = re.search(r'"decode_tok_s": \{"low": \S+, "best": (\S+),', written)
    return float(ttft[1]), 1 / float(rate[1])


def sweep():
    """Nine contexts, each with the speed of decoding and the requests that fit; no TTFT."""
    return ridgepoint.scan(MODEL, GPU, count=8, dtype="fp16", prompt=2048, as_json=True).count('"ctx"')


main(ask, 500, sweep)
