"""The comparison matrix (Figure 10) over all values that the paper leaves open.

Every quantity is an array on the axes of :data:`SHIP_AXES` or :data:`GPU_AXES`, so that a claim is a truth value on
their product, and the share of settings in which it holds can be read off, axis by axis.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from perfmodel.equations import memory, serving
from perfmodel.errors import UserError
from perfmodel.machines import closed_loop as loops
from perfmodel.machines.base import machine_of
from perfmodel.question import Options, resolve
from perfmodel.reports.ship.samples import SAMPLES
from perfmodel.serving.fit import fit
from perfmodel.specs.paths import put
from perfmodel.specs.types import Scenario

SHIP_AXES = ("beat", "KV bits", "stage token budget", "stage overhead")
GPU_AXES = ("KV bits", "token budget", "users per box", "arrival")

#: KV precisions by their bits; both sides take the same.
KV_BITS = {16: "bf16", 8: "fp8"}
#: Time of a stage that the bare machine does not explain [us]: while it blocks the stage, and while it only delays.
OVERHEADS = ((0.0, 0.0), (10.0, 0.0), (25.0, 0.0), (50.0, 0.0), (0.0, 10.0), (0.0, 25.0), (0.0, 50.0))
FULL = 1e9


@dataclass(frozen=True)
class Free:
    """Values that the paper leaves open, each with its range."""

    beats: Sequence[str] = ("load", "fixed")
    kv_bits: Sequence[int] = (16, 8)
    budgets: Sequence[float] = (8, 16, 24, 36, 64, 128)
    overheads: Sequence[tuple[float, float]] = OVERHEADS
    gpu_budgets: Sequence[float] = (16384, 2048)
    gpu_users: Sequence[float] = (9, 64, 380, FULL)
    arrivals: Sequence[str] = ("steady", "lock-step")

    def including(self, budget: float, users: float) -> Free:
        """Return the same ranges with a stage budget and users of a box that a recipe asks for."""
        budgets, boxes = {*map(float, self.budgets), float(budget)}, {*map(float, self.gpu_users), float(users)}
        return replace(self, budgets=sorted(budgets), gpu_users=sorted(boxes))

    @property
    def ship(self) -> dict[str, list[str]]:
        """Labels of the free values on the side of the pipeline, by axis."""
        return {
            "beat": list(self.beats),
            "KV bits": [f"{bits}" for bits in self.kv_bits],
            "stage token budget": [f"{budget:g}" for budget in self.budgets],
            "stage overhead": [overhead_label(*pair) for pair in self.overheads],
        }

    @property
    def gpu(self) -> dict[str, list[str]]:
        """Labels of the free values on the side of the GPUs, by axis."""
        return {
            "KV bits": [f"{bits}" for bits in self.kv_bits],
            "token budget": [f"{budget / 1024:g}Ki" for budget in self.gpu_budgets],
            "users per box": ["KV-full" if users >= FULL else f"{users:g}" for users in self.gpu_users],
            "arrival": list(self.arrivals),
        }


def overhead_label(occupancy: float, latency: float) -> str:
    """Return a stage overhead in words [us]."""
    return f"{occupancy:g} us busy" if occupancy or not latency else f"{latency:g} us delay"


@dataclass(frozen=True)
class Service:
    """What a machine does for a traffic, on the axes of its free values and then of the traffic.

    Attributes
    ----------
    requests : array
        Requests finished [1/s].
    throughput : array
        Input and output tokens [1/s].
    tpot, ttft, wait : array
        Time a token, time to first token in service, and wait for admission to the KV cache before it [s].
    entry : array
        Time by which one more prompt token delays the first output token [s].
    running : array
        Requests in service.
    prompt, output : array
        Mean tokens of a request.
    """

    requests: Any
    throughput: Any
    tpot: Any
    ttft: Any
    wait: Any
    entry: Any
    running: Any
    prompt: Any
    output: Any

    def first_token(self, inside: bool) -> Any:
        """Return the time to first token with the wait for admission inside or outside [s]."""
        return self.ttft + self.wait if inside else self.ttft

    def input_speed(self, inside: bool) -> Any:
        """Return it/s/u of fixed traffic: prompt over time to first token."""
        return self.prompt / self.first_token(inside)


@dataclass(frozen=True)
class Load:
    """Traffic on trailing axes: prompt and output tokens, and how much longer requests in flight are than the mean."""

    prompt: Any
    output: Any
    bias: Any = 1.0
    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def fixed_load(ratios: Sequence[float], contexts: Sequence[float]) -> Load:
    """Return requests of one length each; context is prompt plus output."""
    ratio = np.array(ratios, dtype=float)[:, None]
    context = np.array(contexts, dtype=float)[None, :]
    return Load(context * ratio / (1 + ratio), context / (1 + ratio), 1.0, {"P:D": ratios, "context": contexts})


def sample_load(ratios: Sequence[float]) -> Load:
    """Return the production samples at several splits of prompt and output, which are not published."""
    ratio = np.array(ratios, dtype=float)[:, None]
    context = np.array([sample.tokens for sample in SAMPLES])[None, :]
    bias = np.array([sample.bias for sample in SAMPLES])[None, :]
    names = [sample.name for sample in SAMPLES]
    return Load(context * ratio / (1 + ratio), context / (1 + ratio), bias, {"P:D": ratios, "sample": names})


def mean_load(ratios: Sequence[float]) -> Load:
    """Return fixed traffic of the samples' mean lengths: what a mixture would be without its tail."""
    load = sample_load(ratios)
    return Load(load.prompt, load.output, np.ones_like(load.bias), load.axes)


def _service(scenario: Scenario, offered: Any, load: Load, loop: Any) -> Service:
    cap = fit(scenario, tokens=load.bias * (load.prompt + load.output)).cap
    if not np.any(np.greater_equal(cap, 1)):
        raise UserError(
            f"no request of {scenario.model.name} fits {scenario.system.name} at TP {float(scenario.deployment.tp):g} "
            f"x "
            f"PP {float(scenario.deployment.pp):g}; name another plan, precision or shorter contexts"
        )
    running = np.maximum(1.0, memory.running_requests(offered=offered, cap=cap))
    running_loop = loop(running)
    ttft = running / running_loop.rate - np.maximum(0.0, load.output - 1) * running_loop.tpot
    kept = functools.partial(serving.where_it_fits, cap=cap)
    # A queue before the machine holds the others, so that what is offered is what is served and what waits.
    full = offered >= FULL
    wait = np.where(full, 0.0, serving.admission_wait(offered=offered, running=running, service=running_loop.life))
    return Service(
        requests=kept(value=running_loop.rate),
        throughput=kept(value=running_loop.rate * (load.prompt + load.output)),
        tpot=kept(value=running_loop.tpot),
        ttft=kept(value=ttft),
        wait=kept(value=wait),
        entry=kept(value=running_loop.entry),
        running=kept(value=running),
        prompt=load.prompt,
        output=load.output,
    )


def _stack(parts: Sequence[Service], axis: int = 0) -> Service:
    names = ("requests", "throughput", "tpot", "ttft", "wait", "entry", "running")
    arrays = np.broadcast_arrays(*(getattr(part, name) for name in names for part in parts))
    shaped = {
        name: np.stack(arrays[at * len(parts) : (at + 1) * len(parts)], axis=axis) for at, name in enumerate(names)
    }
    return Service(**shaped, prompt=parts[0].prompt, output=parts[0].output)


def pipeline_service(
    model: str, on: str, users: float, free: Free, load: Load, precision: str = "fp8", changes: Sequence[str] = ()
) -> Service:
    """Return a pipeline's service on :data:`SHIP_AXES` and the axes of the load."""
    shape = (-1, 1, 1, 1)
    busy = np.array([pair[0] for pair in free.overheads]).reshape(1, -1, 1, 1) * 1e-6
    delay = np.array([pair[1] for pair in free.overheads]).reshape(1, -1, 1, 1) * 1e-6
    by_beat = []
    for beat in free.beats:
        by_bits = []
        for bits in free.kv_bits:
            scenario = resolve(model, on, Options(precision=precision, kv_precision=KV_BITS[bits]), changes)
            for path, value in (
                ("token_budget", np.array(free.budgets, dtype=float).reshape(shape)),
                ("layer_overhead", busy),
                ("layer_latency", delay),
                ("beat", beat),
            ):
                scenario = put(scenario, f"system.efficiency.{path}", value)
            by_bits.append(_service(scenario, users, load, functools.partial(closed_loop, scenario, load)))
        by_beat.append(_stack(by_bits))
    return _stack(by_beat)


def closed_loop(scenario: Scenario, load: Load, running: Any, **how: Any) -> loops.Loop:
    """Return the closed loop of one replica with so many requests in service; ``how`` are fields of its load."""
    asked = loops.Load(running, load.prompt, load.output, bias=load.bias, **how)
    return machine_of(scenario.system).closed_loop(scenario, asked)


def gpu_service(
    model: str, on: str, free: Free, load: Load, precision: str = "fp8", changes: Sequence[str] = ()
) -> Service:
    """Return one box's service on :data:`GPU_AXES` and the axes of the load."""
    budget = np.array(free.gpu_budgets, dtype=float).reshape(-1, 1, 1, 1)
    users = np.array(free.gpu_users, dtype=float).reshape(1, -1, 1, 1)
    by_bits = []
    for bits in free.kv_bits:
        scenario = resolve(model, on, Options(precision=precision, kv_precision=KV_BITS[bits]), changes)
        by_arrival = []
        for arrival in free.arrivals:
            loop = functools.partial(closed_loop, scenario, load, budget=budget, lock_step=arrival == "lock-step")
            by_arrival.append(_service(scenario, users, load, loop))
        by_bits.append(_stack(by_arrival, axis=2))
    return _stack(by_bits)


def mixture_speeds(service: Service, inside: bool) -> tuple[Any, Any]:
    """Return it/s/u of the samples averaged both ways: the mean of P/TTFT, and the sum of P over that of TTFT.

    The last axis of the service is the sample; a request of another length differs by what its prompt takes to enter.
    """
    ttft = service.first_token(inside)
    means = []
    for at, sample in enumerate(SAMPLES):
        relative = sample.lengths() / sample.lengths().mean()
        prompt = service.prompt[..., at, None]
        each = prompt * relative
        first = ttft[..., at, None] + service.entry[..., at, None] * (each - prompt)
        means.append((each / first).mean(axis=-1))
    return np.stack(means, axis=-1), service.prompt / ttft
