"""GPUs and other machines that run a step kernel by kernel.

A kernel lasts as long as the slower of its arithmetic and its traffic; collectives between kernels are not hidden;
every layer and every step cost a time that neither tensor parallelism nor bandwidth moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from perfmodel.equations import pipeline
from perfmodel.errors import UserError
from perfmodel.machines.all_reduce import group_all_reduce
from perfmodel.machines.alternating import Alternating
from perfmodel.machines.base import FrontEnd, listed
from perfmodel.machines.expert_exchange import exchanged
from perfmodel.machines.kernel_step import (
    BY_KIN,
    CLASS_SAYS,
    SEEN_SEQUENCES,
    divides,
    query_heads,
    spread_key,
    step,
)
from perfmodel.machines.kernels_efficiency import KernelsEfficiency, efficiency_of
from perfmodel.machines.links import scale_up_link
from perfmodel.machines.power import CausePower
from perfmodel.machines.step import Exchange, Pass, Step, Work
from perfmodel.numerics import minimum
from perfmodel.specs.types import (
    Deployment,
    Model,
    Provenance,
    Scenario,
    System,
)
from perfmodel.specs.weights import CLASSES, layer_count, model_class
from perfmodel.trace import scope

#: Nodes and pipeline stages up to which layouts are tried.
_NODES = 4
_STAGES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)


class Kernels(Alternating):
    """GPUs and other machines that run a step kernel by kernel."""

    name = "kernels"
    efficiency = KernelsEfficiency
    power_shape = CausePower
    engines = ("vllm", "trtllm", "sglang")
    shards_by_head = True
    stores_activations = True
    free_degrees = True
    spreads_experts = True
    failures_published = True
    spread_holds_efficiencies = True
    draft_host_time = 1.2e-3
    draft_host_source = Provenance(
        "vLLM 0.10 on H100, Llama-3.1-8B with EAGLE: 1.2 ms a step (SpecDecode-Bench simulator profile)",
        "estimate",
        low=0.0,
        high=2.4e-3,
    )

    def step(self, scenario: Scenario, work: Work) -> Step:
        # One forward step of a replica, on one micro-batch.
        return step(scenario, work)

    def decode(self, scenario: Scenario, running: Any, context: Any, tokens: Any = 1.0) -> Step:
        # Micro-batches of all stages follow each other, and the host works for each of them.
        stages = scenario.deployment.pp
        batch = pipeline.mean_microbatch(running=running, stages=stages)
        with scope("decode"):
            one = step(scenario, (Pass(batch, tokens, context, decoding=True),))
            return replace(one, host=stages * one.host)

    def prefill(
        self, scenario: Scenario, running: Any, context: Any, prompt: Any, group: Any, before: Any = 0.0
    ) -> tuple[Step, Any]:
        # Prompts of one cycle are dealt to the micro-batches, and those that decode wait for the longest.
        stages = scenario.deployment.pp
        batch = pipeline.mean_microbatch(running=group, stages=stages)
        with scope("prefill"):
            one = step(scenario, (Pass(batch, prompt, before),))
            return one, pipeline.stalled_share(stages=stages, jobs=group) * one.time / batch

    def batch_prefill(self, scenario: Scenario, batch: Any, prompt: Any) -> Any:
        # The time of a static batch of prompts in one step [s].
        return step(scenario, (Pass(batch, prompt, 0.0),)).time

    def layouts(self, scenario: Scenario) -> Iterator[tuple[float, float]]:
        # The degrees that divide a node or are whole nodes, with some numbers of stages.
        node = int(float(scenario.system.chips_per_node))
        degrees = [float(tp) for tp in range(1, node + 1) if node % tp == 0]
        degrees += [float(node * count) for count in range(2, _NODES + 1)] if node < 32 else []
        layers = float(layer_count(scenario.model))
        for tp in degrees:
            yield from ((tp, pp) for pp in _STAGES if pp <= layers and tp * pp <= node * _NODES)

    def unmeasured(self, scenario: Scenario) -> str:
        # Serving runs that were fitted and scored stand on tensor ranks of one node.
        plan = scenario.deployment
        if float(plan.pp) > 1:
            return "pipeline stages on GPUs"
        return "TP over nodes" if float(plan.tp) > float(scenario.system.chips_per_node) else ""

    def check_plan(self, model: Model, system: System, plan: Deployment) -> None:
        # Refuse ranks that do not divide the heads, and such that fit no nodes.
        node, tp, cores = float(system.chips_per_node), float(plan.tp), float(system.cores)
        for run in model.layers:
            if run.attention is None and run.mla is None:
                continue
            heads, kv_heads = query_heads(run)
            if not system.pads_heads and not divides(heads, kv_heads, tp * cores):
                ranks = f" of {cores:g} cores" if cores > 1 else ""
                degrees = listed(t for t in range(1, int(heads) + 1) if divides(heads, kv_heads, t * cores))
                raise UserError(
                    f"--tp {tp:g}{ranks} does not divide the {heads:g} heads ({kv_heads:g} KV heads) of {model.name}; "
                    f"use {f'one of {degrees}' if degrees else 'another system'}"
                )
        if node % tp and tp % node:
            raise UserError(
                f"--tp {tp:g} neither divides nor is a multiple of the {node:g} chips of a {system.name} node"
            )

    def splits(self, model: Model, tp: float) -> bool:
        # Whether tensor ranks divide the heads of every layer of a model.
        return all(divides(*query_heads(run), tp) for run in model.layers if run.attention or run.mla)

    def stage_latency(self, system: System) -> float:
        # The calibrated latency between pipeline stages [s].
        return float(efficiency_of(system).stage_latency)

    def front_end(self, system: System) -> FrontEnd:
        # The calibrated front end of the engine.
        found = efficiency_of(system)
        return FrontEnd(found.request_time, found.stream_time, found.prefill_group)

    def drafting(self, target: Scenario, draft: Scenario) -> Scenario:
        # A draft on as many of the target's ranks as divide its heads.
        assert target.speculation is not None
        tp = minimum(target.deployment.tp, target.speculation.max_tp)
        return replace(draft, deployment=replace(draft.deployment, tp=tp))

    def outside(self, scenario: Scenario) -> list[str]:
        # What of a question the calibration did not see; bands widen by half there.
        plan, traffic = scenario.deployment, scenario.traffic
        asked = (
            (float(traffic.concurrency) / float(plan.dp), SEEN_SEQUENCES, "requests at once in a replica"),
            (float(traffic.prompt), 16384.0, "prompt tokens"),
            (float(plan.tp), 8.0, "tensor ranks"),
        )
        return [f"{value:,g} {name} (up to {limit:,g})" for value, limit, name in asked if value > limit]

    def spreads(self, scenario: Scenario) -> tuple[float, float]:
        # The spread of the serving rows whose model was left out of the fit, wider outside their range.  A model that
        # was fitted on this chip and engine has one of its own, others that of their class.
        found, model = efficiency_of(scenario.system), scenario.model
        wider = 1.5 if self.outside(scenario) else 1.0
        wider *= BY_KIN if scenario.system.kin else 1.0
        both = (found.ttft_spread, found.tpot_spread)
        key = spread_key(model.name)
        ttft, tpot = (float(part.get(key, part[model_class(model)])) * wider for part in both)
        return ttft, tpot

    def warnings(self, scenario: Scenario, token: Mapping[str, Any], plain: Mapping[str, Any]) -> list[str]:
        plan, node = scenario.deployment, float(scenario.system.chips_per_node)
        mind = []
        kind, model, known = (
            model_class(scenario.model),
            scenario.model.name,
            efficiency_of(scenario.system).tpot_spread,
        )
        if spread_key(model) not in known and kind != "dense" and len(known) > len(CLASSES):
            mind.append(
                f"{model} was not fitted on this chip and engine: 80 % of TPOT of {CLASS_SAYS[kind]} that were left "
                f"out lie within x{math.exp(float(known[kind])):.2f}"
            )
        if float(plan.tp) > node:
            mind.append("TP across nodes: the all-reduce between nodes is a ring at the network's rate, uncalibrated")
        if float(plan.pp) > 1:
            mind.append("pipeline stages on GPUs follow from the steps of one GPU: no measurement of them was fitted")
        if float(plan.attention_dp) > 1:
            mind.append("attention DP: requests are taken as evenly spread over ranks that step together, not fitted")
        measured = efficiency_of(scenario.system).all_reduce
        if measured is not None and float(plan.tp) > 1:
            faster = float(scale_up_link(scenario.system).bandwidth_per_direction / measured.link_bandwidth)
            if faster != 1.0:
                mind.append(
                    f"all-reduces are those measured over links of {float(measured.link_bandwidth) / 1e9:g} GB/s, "
                    f"x{faster:.3g} as fast: from H100 to B200 that misses large measured ones by a factor of 1.2 to "
                    "2.2"
                )
        return mind

    def collective(self, system: System, operation: str, ranks: float, message: float) -> Mapping[str, Any]:
        """Return the engine's own algorithm, measured or by the form of the topology, and NCCL's [s].

        Parameters
        ----------
        system : System
        operation : str
        ranks, message : float

        Returns
        -------
        mapping of str to Number
        """
        if operation == "all-to-all":
            each = Exchange(1.0, 1.0, None, forwarded=False)
            return {"direct exchange": exchanged(system, message, each, ranks)}
        reached = efficiency_of(system)
        own, alone = "closed form of the topology", system
        if reached.all_reduce is not None:
            # Nothing runs beside it that would hide a part.
            own = "the engine's own, measured"
            alone = replace(system, efficiency=replace(reached, all_reduce=replace(reached.all_reduce, overlap=1.0)))
        return {
            own: group_all_reduce(alone, message, ranks),
            "NCCL, closed form": group_all_reduce(system, message, ranks, nccl=True),
        }


MACHINE = Kernels()
