"""GenZ: an operator table in pandas for prefill and for decode; H100 by the datasheet, as its own examples have it."""

from GenZ import decode_moddeling, prefill_moddeling
from measure import main

H100 = {"Flops": 989, "Memory_size": 80, "Memory_BW": 3350, "ICN": 450, "ICN_LL": 2, "real_values": True}


def ask(question):
    concurrency, prompt, output, tp = question
    common = {
        "model": "meta-llama/meta-llama-3.1-70b",
        "batch_size": concurrency,
        "input_tokens": prompt,
        "system_name": H100,
        "bits": "bf16",
        "tensor_parallel": tp,
        "parallelism_heirarchy": f"TP{{{tp}}}_EP{{1}}_PP{{1}}",
    }
    prefill = prefill_moddeling(**common)
    decode = decode_moddeling(**common, output_tokens=output, Bb=1)
    return prefill["Latency"] / 1e3, decode["Latency"] / 1e3


main(ask, 1)
