"""What data call metrics, and how each is predicted."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perfmodel.prediction import Prediction
from perfmodel.serving.cost import draw
from perfmodel.serving.steady import steady_state

#: Family of power and energy, whose bands come from what is not known of the power.
POWER = "power and energy"


@dataclass(frozen=True)
class Form:
    """How a metric of the data is predicted.

    Attributes
    ----------
    family : str
        The name under which its scores stand.
    units : tuple of str
        Kinds of unit that it can have; none where no model of ours gives it.
    how : str
        ``loop``: steady state at the row's concurrency; ``most``: the best of all concurrencies; ``prompt``: a static
        batch; ``static``: a batch that nothing else disturbs; ``pools``: two pools in a closed loop; ``step``: one
        decode step; ``context``: decode steps over contexts; ``curve`` and ``collective``: a collective;
        ``accepted``: speculative arithmetic; ``speedup`` and ``mtp``: a step of speculation; ``later``: not modelled
        yet, ``reason`` says what brings it.
    value : callable, optional
        The number inside, of the answer of a steady state.
    """

    family: str
    units: tuple[str, ...]
    how: str = "loop"
    value: Callable[[Prediction], Any] | None = None
    reason: str = ""


def rate(answer: Prediction) -> Any:
    """Return output tokens in a second."""
    return answer.metrics["output_tokens_per_s"]


def _both(answer: Prediction) -> Any:
    return answer.metrics["output_tokens_per_s"] + answer.metrics["input_tokens_per_s"]


def _chip_power(answer: Prediction) -> Any:
    """Return the mean power of one chip without its share of the node [W]."""
    return draw(answer.scenario, steady_state(answer.scenario)).chip


def _watts(answer: Prediction) -> Any:
    return answer.metrics["power_w"]


def _joules(answer: Prediction) -> Any:
    return answer.metrics["power_w"] / rate(answer)


FORMS: dict[str, Form] = {
    "ttft": Form("TTFT", ("time",), value=lambda answer: answer.metrics["ttft_s"]),
    "ttft_median": Form("TTFT", ("time",), value=lambda a: a.metrics.get("ttft_median_s", a.metrics["ttft_s"])),
    "tpot": Form("TPOT", ("time", "slope"), value=lambda answer: answer.metrics["tpot_s"]),
    "latency": Form("latency", ("time",), value=lambda answer: answer.metrics["request_latency_s"]),
    "output": Form("output throughput", ("rate",), value=rate),
    "output_chip": Form("output throughput", ("rate",), value=lambda answer: rate(answer) / answer.chips),
    "input": Form("input throughput", ("rate",), value=lambda answer: answer.metrics["input_tokens_per_s"]),
    "input_node": Form(
        "input throughput",
        ("rate",),
        value=lambda a: a.metrics["input_tokens_per_s"] / a.chips * a.scenario.system.chips_per_node,
    ),
    "both": Form("total throughput", ("rate",), value=_both),
    "both_chip": Form("total throughput", ("rate",), value=lambda answer: _both(answer) / answer.chips),
    "user": Form("output speed per user", ("rate",), value=lambda answer: 1 / answer.metrics["tpot_s"]),
    "requests": Form(
        "request throughput",
        ("rate",),
        value=lambda answer: answer.scenario.traffic.concurrency / answer.metrics["request_latency_s"],
    ),
    "mfu": Form("utilisation", ("share",), value=lambda answer: answer.metrics["mfu"]),
    "mbu": Form("utilisation", ("share",), value=lambda answer: answer.metrics["mbu"]),
    "most": Form("largest throughput", ("rate",), "most"),
    "prompt": Form("prompt time", ("time",), "prompt"),
    "step": Form("decode step", ("time", "slope"), "step"),
    "collective": Form("all-reduce", ("time",), "collective"),
    "slope": Form("step against context", ("slope",), "context"),
    "intercept": Form("step against context", ("time",), "context"),
    "curve": Form("all-reduce share", ("share",), "curve"),
    "accepted": Form("accepted length", (), "accepted"),
    "speculative": Form("speed-up of speculation", ("share",), "speedup"),
    "mtp": Form("output speed per user", ("rate",), "mtp"),
    "given": Form("inputs", (), "later", reason="an input of the models, not something they predict"),
    "power": Form(POWER, ("power",), value=_watts),
    "power_chip": Form(POWER, ("power",), value=_chip_power),
    "power_share": Form(
        POWER, ("share",), value=lambda answer: _chip_power(answer) / answer.scenario.system.power.chip_tdp
    ),
    "energy": Form(POWER, ("energy",), value=_joules),
    "power_most": Form(POWER, ("power",), "most", value=_watts),
    "energy_most": Form(POWER, ("energy",), "most", value=_joules),
    "cost": Form(POWER, (), "later", reason="what somebody's model of cost or peak power gives is no measurement"),
    "tail": Form("percentiles", (), "later", reason="percentiles come with the simulator"),
}
_NAMES: dict[str, tuple[str, ...]] = {
    "ttft": ("ttft", "ttft_mean", "mean_ttft", "ttft_avg", "avg_ttft", "time_to_first_token", "first_token_latency"),
    "ttft_median": ("ttft_median", "median_ttft", "ttft_p50", "p50_ttft"),
    "tpot": (
        *("tpot", "tpot_mean", "mean_tpot", "tpot_avg", "tpot_median", "median_tpot", "tpot_p50", "p50_tpot"),
        *("itl", "itl_mean", "mean_itl", "itl_avg", "itl_median", "median_itl", "itl_p50", "p50_itl", "tbt"),
        *("inter_token_latency", "time_per_output_token", "time_between_tokens"),
    ),
    "latency": (
        *("request_latency", "latency", "e2e", "e2el", "e2e_latency", "e2e_time", "end_to_end_latency"),
        "e2e_request_latency",
        *("mean_e2el", "e2el_mean", "request_latency_mean", "request_latency_median", "median_e2el", "e2el_median"),
    ),
    "output": (
        *("output_throughput", "output_throughput_total", "output_token_throughput", "output_tokens_per_s"),
        *("output_tokens_per_second", "throughput", "output_tps", "generation_throughput", "decode_throughput"),
        *("output_tput", "token_throughput", "output_tok_s"),
    ),
    "output_chip": (
        *("output_tok_s_per_chip", "output_tok_s_per_gpu", "decode_tps_per_gpu", "decode_tps_per_chip"),
        *("output_throughput_per_gpu", "output_throughput_per_chip", "output_tput_per_gpu", "output_tps_per_gpu"),
        *("output_tps_per_rank", "output_tokens_per_s_per_gpu", "output_tokens_per_s_per_chip", "output_tps_per_chip"),
    ),
    "input": (
        "input_throughput",
        "input_tokens_per_s",
        "input_token_throughput",
        "prefill_throughput",
        "input_tput",
        "prefill_tps",
    ),
    "input_node": ("prefill_tps_per_node", "input_tps_per_node"),
    "both": (
        *("total_token_throughput", "total_throughput", "system_throughput", "total_tokens_per_s", "total_tput"),
        "tokens_per_s",
        "total_tok_s",
    ),
    "both_chip": (
        *(
            "tokens_per_s_per_chip",
            "tokens_per_s_per_gpu",
            "tput_per_gpu",
            "total_tput_per_gpu",
            "total_throughput_per_gpu",
        ),
    ),
    "user": (
        *("output_tps_per_user", "tps_per_user", "output_throughput_per_user", "output_tokens_per_s_per_user"),
        *("interactivity", "tokens_per_s_per_user", "output_speed", "decode_speed"),
    ),
    "requests": ("request_throughput", "requests_per_s", "requests_per_second", "qps"),
    "mfu": ("mfu",),
    "mbu": ("mbu", "hbm_bandwidth_utilisation", "hbm_bandwidth_utilization", "memory_bandwidth_utilisation"),
    "most": (
        *("output_throughput_total_max", "output_throughput_max", "max_output_throughput", "mlperf_offline_throughput"),
        *("offline_throughput", "max_throughput"),
    ),
    "prompt": ("prompt_time", "prefill_time", "prefill_latency", "context_latency"),
    "step": ("decode_step_time", "decode_step_latency", "decode_latency", "token_time", "generation_step_latency"),
    "slope": ("itl_slope_per_context_token", "tpot_slope_per_context_token"),
    "intercept": ("itl_intercept", "tpot_intercept"),
    "power": ("system_power_mean", "system_power", "mean_power", "power_mean", "power", "node_power", "wall_power"),
    "power_chip": ("gpu_power", "gpu_avg_power", "avg_gpu_power", "gpu_power_mean", "chip_power", "power_per_gpu"),
    "power_share": ("gpu_avg_power_frac_tdp", "power_fraction_of_tdp", "gpu_power_share"),
    "energy": ("energy_per_token", "energy_per_output_token", "joules_per_token", "joules_per_output_token"),
    "collective": ("all_reduce_latency", "allreduce_latency", "all_reduce_time", "allreduce_time"),
    "curve": ("allreduce_bandwidth_fraction", "all_reduce_bandwidth_fraction"),
    "accepted": ("mean_accepted_length_tau", "accepted_length", "mean_accepted_length"),
    "speculative": (
        *("speedup", "slowdown", "throughput_ratio_vs_no_spec", "throughput_ratio_vs_eagle_3"),
        *("throughput_ratio_vs_no_spec_range_low", "throughput_ratio_vs_no_spec_range_high"),
    ),
    "given": (
        *("acceptance_rate_alpha", "acceptance_rate_second_token", "conditional_acceptance_position"),
        *("draft_cost_ratio_c", "draft_share_of_sd_step"),
    ),
}
#: One name of each metric that is predicted.
PREDICTED = tuple(names[0] for key, names in _NAMES.items() if FORMS[key].how != "later")
_FORM_OF = {name: key for key, names in _NAMES.items() for name in names}
_POWER = re.compile(r"power|energy|joule|watt|tco|usd|cost|carbon")
_TAIL = re.compile(r"(^|_)(p\d\d(\.\d)?|std|max|min|p999?)(_|$)")
_GIVEN = re.compile(r"^(acceptance_rate_position_\d+|t_[a-z_]+)$")


@functools.cache
def form_key(metric: str) -> str:
    """Return the key of a metric's form; empty where nothing here gives it."""
    name = re.sub(r"\(.*?\)", "", metric.casefold()).strip()
    name = re.sub(r"[\s\-/]+", "_", name).strip("_")
    for tried in (name, re.sub(r"_(s|ms|us|sec|seconds|w|watts)$", "", name)):
        if tried in _FORM_OF:
            return _FORM_OF[tried]
    for pattern, key in ((_POWER, "cost"), (_GIVEN, "given"), (_TAIL, "tail")):
        if pattern.search(name):
            return key
    return ""


def find_form(metric: str) -> Form | None:
    """Return how a metric is predicted, or None where nothing here gives it."""
    key = form_key(metric)
    return FORMS[key] if key else None
