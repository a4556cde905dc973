"""The efficiencies of SN40L, drawn from a few values of the dataflow paper; everything else in it is predicted.

Nine numbers.  Figure 11 gives the looped decoder, the first one, and the one between kernel boundaries; Figure 1a's 16
sockets give what a step takes besides.  The host's call and the rate of the cache come from one row of Figure 13, the
time between samples from one row of Figure 12, what experts keep of a boundary from one bar of Figure 10, and the share
of arithmetic from the six values of one row of Table 4.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from scipy.optimize import least_squares

from perfmodel.equations import speculative
from perfmodel.machines import dataflow, kernel_step, kernels_efficiency
from perfmodel.machines.base import machine_of
from perfmodel.machines.dataflow import DataflowEfficiency as Efficiency
from perfmodel.machines.dataflow import verifying
from perfmodel.machines.operators import head_operator
from perfmodel.machines.step import Pass, Step
from perfmodel.specs import catalog, files
from perfmodel.specs.types import Deployment, Model, Scenario, System

#: Names of the paper.
MODELS = {
    "0.5B": "qwen2.5-0.5b",
    "1B": "llama-3.2-1b",
    "3B": "llama-3.2-3b",
    "8B": "llama-3.1-8b",
    "70B": "llama-3.3-70b",
    "72B": "qwen2.5-72b",
    "405B": "llama-3.1-405b",
}
#: What the fit rests on.
LOOPED, FIRST, BASE = 21.5e-6, 42e-6, 73e-6
OFFLOADING_ROW, STREAMING_ROW, TABLE_4_ROW = "Llama 8B", "1B", "70B-1B 4k"
LOOPING_BAR = ("Mixtral8x7B", "4K BS1")
#: Rows of Table 4: target, draft, context, and the row of Table 1 whose acceptance applies (HumanEval).
TABLE_4 = {
    "70B-1B 4k": ("70B", "1B", 4096.0, "70B/1B"),
    "70B-8B 4k": ("70B", "8B", 4096.0, "70B/8B"),
    "70B-1B 32k": ("70B", "1B", 32768.0, "70B/1B"),
    "70B-8B 32k": ("70B", "8B", 32768.0, "70B/8B"),
    "Qwen72B-0.5B 4k": ("72B", "0.5B", 4096.0, "Qwen2.5 72B/1.5B"),
    "405B-3B 4k": ("405B", "3B", 4096.0, "405B/3B"),
    "405B-8B 4k": ("405B", "8B", 4096.0, "405B/8B"),
}
COLUMNS = tuple((batch, k) for batch in (1.0, 4.0, 16.0) for k in (5.0, 9.0))
#: Passes over the fits, each of which holds the others' numbers fast.
ROUNDS = 3


@functools.cache
def figures() -> dict[str, Any]:
    """Return the paper's tables and digitised figures."""
    path = catalog.bundled() / "data" / "paper_dataflow.json"
    return cast(dict[str, Any], json.loads(path.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Machine:
    """A system with efficiencies, and the decode steps of models on it.

    Attributes
    ----------
    system : System
    efficiency : Efficiency
        Of the system's kind.
    ranks : float
        Chips that share a model.
    """

    system: System
    efficiency: Any
    ranks: float = 16.0

    def scenario(self, model: Model, precision: str = "bf16") -> Scenario:
        """Return a model on the chips; traffic plays no part in a step."""
        engines = machine_of(self.system).engines
        engine = "trtllm" if "trtllm" in engines else engines[0]
        plan = Deployment("paper", engine, precision, "bf16", self.ranks)
        return Scenario(replace(self.system, efficiency=self.efficiency), model, plan, catalog.load_traffic("chat"))

    def step(
        self,
        model: str,
        batch: float = 1.0,
        context: float = 4096.0,
        tokens: float = 1.0,
        precision: str = "bf16",
        **switches: Any,
    ) -> Step:
        """Return a decode step of a batch; ``switches`` are fields of the efficiency."""
        machine = self.with_(**switches)
        scenario = machine.scenario(catalog.load_model(MODELS.get(model, model)), precision)
        return machine_of(self.system).decode(scenario, batch, context, tokens)

    def time(self, model: str, batch: float = 1.0, context: float = 4096.0, tokens: float = 1.0, **more: Any) -> float:
        """Return the time of a decode step [s]."""
        return float(self.step(model, batch, context, tokens, **more).time)

    def with_(self, **numbers: Any) -> Machine:
        """Return the machine with other efficiencies."""
        return replace(self, efficiency=replace(self.efficiency, **numbers))


def sn40(sockets: int = 16) -> Machine:
    """Return SN40L as it is calibrated."""
    system = catalog.load_system(f"sn40l-{sockets}")[0]
    return Machine(system, system.efficiency, float(sockets))


def _head_of(machine: Machine) -> tuple[Scenario, Any]:
    """Return a decode step of one sequence of the 8B, and its head."""
    scenario = machine.scenario(catalog.load_model(MODELS["8B"]))
    return scenario, head_operator(scenario, (Pass(1.0, 1.0, 1.0, decoding=True),))


@functools.cache
def h100(ranks: float = 8.0) -> Machine:
    """Return H100 with TensorRT-LLM as the paper ran it: two numbers from Figure 1a's 2 and 8 GPUs.

    The time a layer, and how much an all-reduce grows each time that the ranks double; sequences of length 1, as the
    paper benchmarked.  What Figure 2 finds outside the decoders at 8 GPUs is a step's and not a layer's.  All else is
    calibrated on public kernel tables.
    """
    system = catalog.load_system("dgx-h100", "trtllm")[0]
    outside = figures()["fig2a_tpot_us_8B"]["8xH100"] * figures()["fig2b_pct"]["8xH100"][-1] / 100 * 1e-6
    calibrated = kernels_efficiency.efficiency_of(system)
    start = Machine(system, replace(calibrated, step_time=outside), 8.0)
    head = kernel_step.kernel(*_head_of(start), 1.0)[0]
    start = start.with_(step_time=outside - float(head.memory) - float(calibrated.sequence_time))
    printed = {count: float(figures()["fig1a_tok_s_8B_bs1"][f"{count}xH100"]) for count in (2, 8)}

    def made(numbers: Any) -> Machine:
        reduce = replace(start.efficiency.all_reduce, small_growth=numbers[1])
        return start.with_(layer_time=numbers[0] * 1e-6, all_reduce=reduce)

    def residuals(numbers: Any) -> list[float]:
        return _logs(
            (replace(made(numbers), ranks=float(n)).time("8B", 1.0, 1.0) * rate, 1.0) for n, rate in printed.items()
        )

    return replace(made(least_squares(residuals, [60.0, 1.0], x_scale=[10.0, 1.0]).x), ranks=ranks)


def kernel_looping(machine: Machine, model: str, batch: float, context: float, precision: str = "bf16") -> float:
    """Return the gain of KernelLooping alone (Figure 10): nothing streams, and the host is asked every token."""
    plain: dict[str, Any] = {"schedule_offloading": False, "batch_streaming": False, "precision": precision}
    looped = machine.time(model, batch, context, **plain)
    return machine.time(model, batch, context, kernel_looping=False, **plain) / looped


def batch_streaming(machine: Machine, model: str, batch: float) -> float:
    """Return the gain of BatchStreaming on a looped decoder (Figure 12)."""
    off: dict[str, Any] = {"schedule_offloading": False}
    return machine.time(model, batch, batch_streaming=False, **off) / machine.time(model, batch, **off)


def schedule_offloading(machine: Machine, model: str, batch: float, tokens: float) -> float:
    """Return the gain of asking the host once in so many tokens (Figure 13)."""
    off = machine.time(model, batch, schedule_offloading=False)
    return off / machine.time(model, batch, schedule_offloading=True, offloaded_tokens=tokens)


def human_eval(pair: str, k: float) -> float:
    """Return the acceptance ratio of Table 1 on HumanEval."""
    columns = figures()["table1_AR"]["cols"]
    return float(figures()["table1_AR"][pair][f"{k:g}"][columns.index("HumanEval")])


def speculative_step(
    machine: Machine, target: str, draft: str, batch: float, context: float, k: float, **switches: Any
) -> float:
    """Return the time of a step: k drafts, for which the host may be offloaded, then a verification that needs it."""
    offloading = {"schedule_offloading": True, "offloaded_tokens": k, **switches}
    one = machine.time(draft, batch, context, **offloading)
    machine = replace(machine, efficiency=verifying(replace(machine.efficiency, **switches)))
    verify = machine.time(target, batch, context, k + 1)
    return float(speculative.speculative_step(draft=one, drafted=k, verify=verify, host=0.0))


def table_4(machine: Machine, row: str, batch: float, k: float) -> float:
    """Return a speed-up of Table 4 over the target alone.

    ScheduleOffloading is for drafts, so the host is asked for each token of the target alone.
    """
    target, draft, context, pair = TABLE_4[row]
    length = speculative.length_of_ratio(ratio=human_eval(pair, k), drafted=k)
    step = speculative_step(machine, target, draft, batch, context, k)
    plain = machine.time(target, batch, context, schedule_offloading=False)
    return float(speculative.speculative_speedup(length=length, plain=plain, step=step))


# --- the fits ----------------------------------------------------------------------------------------------------


def _figure_11(machine: Machine) -> Machine:
    """Set warm-up and boundary, the rate at which weights stream, and what is left of a step of Figure 1a."""
    whole = catalog.load_model(MODELS["8B"])
    fewer = replace(whole, layers=(replace(whole.layers[0], count=float(whole.layers[0].count) - 1),))
    work = (Pass(1.0, 1.0, 4096.0, decoding=True),)

    def decoder(memory: float) -> float:
        """Return one looped decoder: the rest of a step does not change from 32 decoders to 31."""
        tried = machine.with_(memory=memory, warm_up=0.0)
        return float(dataflow.step(tried.scenario(whole), work).time - dataflow.step(tried.scenario(fewer), work).time)

    # A decoder is A / memory + B.
    streamed = decoder(0.5) - decoder(1.0)
    memory = streamed / (LOOPED - (decoder(1.0) - streamed))
    machine = machine.with_(memory=memory, warm_up=FIRST - LOOPED, kernel_boundary=BASE - LOOPED, step_time=0.0)
    rate = float(figures()["fig1a_tok_s_8B_bs1"]["SN40-16"])
    return machine.with_(step_time=1 / rate - machine.time("8B"))


def _solve(machine: Machine, start: Mapping[str, float], errors: Callable[[Machine], list[float]]) -> Machine:
    """Return the machine whose numbers leave the least squared logarithms, searched from a start."""
    names = list(start)

    def made(logs: Any) -> Machine:
        return _figure_11(machine.with_(**{name: math.exp(log) for name, log in zip(names, logs, strict=True)}))

    def residuals(logs: Any) -> list[float]:
        return errors(made(logs))

    found = least_squares(residuals, [math.log(value) for value in start.values()], xtol=1e-10)
    return made(found.x)


def _logs(pairs: Any) -> list[float]:
    return [math.log(computed / printed) for computed, printed in pairs]


def fit(machine: Machine) -> Machine:
    """Return the machine with the numbers that the paper's few values give."""
    paper = figures()
    row_13 = paper["fig13_schedule_offload_k9"][OFFLOADING_ROW]
    row_12 = dict(zip(paper["fig12_batchstreaming"]["BS"], paper["fig12_batchstreaming"][STREAMING_ROW], strict=True))
    bar_10 = next(value for *where, value in paper["fig10_kernel_looping_speedup"] if tuple(where) == LOOPING_BAR)
    row_4 = dict(zip(COLUMNS, paper["table4_speedup"][TABLE_4_ROW], strict=True))
    for _ in range(ROUNDS):
        machine = _solve(
            machine,
            {"cache_memory": 0.55, "host_time": 450e-6},
            lambda one: _logs(
                (schedule_offloading(one, "8B", float(batch), 9.0), gain) for batch, gain in row_13.items()
            ),
        )
        machine = _solve(
            machine,
            {"sample_time": 2e-6},
            lambda one: _logs((batch_streaming(one, "1B", float(batch)), gain) for batch, gain in row_12.items()),
        )
        machine = _solve(
            machine,
            {"expert_boundary": 0.6},
            lambda one: _logs([(kernel_looping(one, "mixtral-8x7b", 1.0, 4096.0), bar_10)]),
        )
        machine = _solve(
            machine,
            {"compute": 0.5},
            lambda one: _logs((table_4(one, TABLE_4_ROW, *column), gain) for column, gain in row_4.items()),
        )
    return machine


@functools.cache
def fitted() -> Machine:
    """Return SN40L-16 with fitted numbers; those of the default file where nothing of the paper gives them."""
    raw = files.read_yaml(catalog.bundled() / catalog.CALIBRATION / f"default-{dataflow.MACHINE.name}.yaml")
    fields = {key: value for key, value in raw.items() if key not in ("description", "source", "kind_of_numbers")}
    defaults, _ = files.build(Efficiency, fields, {})
    return fit(Machine(catalog.load_bare_system("sn40l-16"), defaults))
