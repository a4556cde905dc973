"""llm-analysis: closed forms layer by layer, ring all-reduce; its efficiencies are left as shipped."""

import logging

from llm_analysis.analysis import LLMAnalysis
from llm_analysis.config import ModelConfig, ParallelismConfig, get_dtype_config_by_name, get_gpu_config_by_name
from llm_analysis.logger import logger
from measure import LLAMA, main

logger.setLevel(logging.ERROR)

MODEL = ModelConfig(
    name="Llama-3.1-70B",
    num_layers=LLAMA["num_hidden_layers"],
    n_head=LLAMA["num_attention_heads"],
    hidden_dim=LLAMA["hidden_size"],
    vocab_size=LLAMA["vocab_size"],
    max_seq_len=LLAMA["max_position_embeddings"],
    num_key_value_heads=LLAMA["num_key_value_heads"],
    ffn_embed_dim=LLAMA["intermediate_size"],
    expansion_ratio=LLAMA["intermediate_size"] / LLAMA["hidden_size"],
    model_type="llama",
)
ANALYSES = {
    tp: LLMAnalysis(
        MODEL,
        get_gpu_config_by_name("h100-sxm-80gb"),
        get_dtype_config_by_name("w16a16e16"),
        ParallelismConfig(tp_size=tp, sp_size=tp),
    )
    for tp in (4, 8)
}


def ask(question):
    concurrency, prompt, output, tp = question
    found = ANALYSES[tp].inference(batch_size_per_gpu=concurrency, seq_len=prompt, num_tokens_to_generate=output)
    return found["prefill_latency"], found["decode_latency"]


main(ask, 20)
