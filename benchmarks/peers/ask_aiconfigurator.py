"""aiconfigurator: measured kernel tables behind a compiled engine; one session for each TP, its static estimate."""

import logging

logging.disable(logging.WARNING)

from aiconfigurator.sdk.backends.factory import get_backend  # noqa: E402
from aiconfigurator.sdk.config import ModelConfig, RuntimeConfig  # noqa: E402
from aiconfigurator.sdk.inference_session import InferenceSession  # noqa: E402
from aiconfigurator.sdk.models import get_model  # noqa: E402
from aiconfigurator.sdk.perf_database import get_database_view, get_latest_database_version  # noqa: E402
from measure import main  # noqa: E402

MODEL, SYSTEM, BACKEND = "meta-llama/Meta-Llama-3.1-70B", "h100_sxm", "trtllm"
DATABASE = get_database_view(SYSTEM, BACKEND, get_latest_database_version(system=SYSTEM, backend=BACKEND))
SESSIONS = {}


def ask(question):
    concurrency, prompt, output, tp = question
    if tp not in SESSIONS:
        SESSIONS[tp] = InferenceSession(
            get_model(MODEL, ModelConfig(tp_size=tp), BACKEND), DATABASE, get_backend(BACKEND)
        )
    found = SESSIONS[tp].run_static(RuntimeConfig(batch_size=concurrency, isl=prompt, osl=output), mode="static")
    answer = found.get_result_dict()
    return answer["ttft"] / 1e3, answer["tpot"] / 1e3


main(ask, 50)
