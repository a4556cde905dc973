"""vllm-sr-sim: two constants a profile, built once for each TP; an answer is the two latencies of the profile."""

import math

from fleet_sim import H100_SXM, LLAMA_3_1_70B, ProfileBuilder, ServingConfig
from measure import main

PROFILES = {tp: ProfileBuilder().build(H100_SXM, LLAMA_3_1_70B, ServingConfig(tp=tp)) for tp in (4, 8)}


def ask(question):
    concurrency, prompt, output, tp = question
    profile = PROFILES[tp]
    # As its own service_time() does it, at the given concurrency and not at the most that fits.
    length = float(prompt + output)
    chunks = math.ceil(prompt / profile.chunk)
    chunk = profile.prefill_iter_latency(profile.chunk, prompt / 2, concurrency, length)
    return chunks * chunk, profile.iter_latency(concurrency, length)


main(ask, 2000)
