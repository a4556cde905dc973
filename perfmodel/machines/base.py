"""What a kind of machine answers; everything else asks it here and knows no kind by name.

A kind is one file with a subclass of :class:`Machine` and an instance ``MACHINE`` of it.  It has to say how a decode
step and a prefill come about (:meth:`Machine.decode`, :meth:`Machine.prefill`) and how both share a replica
(:meth:`Machine.closed_loop`); all other answers have a default that holds for a machine of which little is known.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from perfmodel.errors import UserError
from perfmodel.machines.closed_loop import Load, Loop
from perfmodel.machines.step import Step
from perfmodel.specs.kinds import Kind, kind_of
from perfmodel.specs.types import Deployment, Model, Provenance, Scenario, System, Tier

#: What a closed form misses where no measurement of the machine tells: logarithm of a factor that holds 80 %.
UNMEASURED_SPREAD = 0.15


@dataclass(frozen=True)
class FrontEnd:
    """What an engine's front end takes for a request and for a token that it sends [s], and how prompts are grouped."""

    request: Any = 0.0
    stream: Any = 0.0
    group: Any = 1.0


class Machine(Kind, abc.ABC):
    """A kind of machine: see :class:`perfmodel.specs.kinds.Kind` for what its files need.

    Attributes
    ----------
    free_degrees : bool
        Whether the tensor-parallel degree is free; else it is one of the system's plans.
    spreads_experts : bool
        Whether experts can lie on ranks of their own.
    ends_apart : bool
        Whether embedding and head have stages of their own.
    drafts_apart : bool
        Whether a draft runs on stages of its own; else on the chips of the target.
    prefill_rides : bool
        Whether prompts ride along with decoding, chunk by chunk, instead of alternating with it.
    skips_failed : bool
        Whether a replica goes on without a failed node; else it starts elsewhere.
    failures_published : bool
        Whether the time between failures of ``hardware_specs/reliability.yaml`` is that of such chips.
    spread_holds_efficiencies : bool
        Whether the spread of the calibration holds what the estimates of its efficiencies leave open.
    draft_host_time : float
        Time a step to accept, reject and start over beyond that of the passes [s].
    draft_host_source : Provenance
        Where that comes from.
    """

    free_degrees: ClassVar[bool] = False
    spreads_experts: ClassVar[bool] = False
    ends_apart: ClassVar[bool] = False
    drafts_apart: ClassVar[bool] = False
    prefill_rides: ClassVar[bool] = False
    skips_failed: ClassVar[bool] = False
    failures_published: ClassVar[bool] = False
    spread_holds_efficiencies: ClassVar[bool] = False
    draft_host_time: ClassVar[float] = 0.0
    draft_host_source: ClassVar[Provenance] = Provenance("not measured", "estimate", low=0.0, high=1e-3)

    # --- steps ---------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def decode(self, scenario: Scenario, running: Any, context: Any, tokens: Any = 1.0) -> Step:
        """Return a decode step of a replica, with so many new tokens of each sequence.

        Parameters
        ----------
        scenario : Scenario
        running : Number
            Sequences that the replica runs [1].
        context : Number
            Mean tokens in the cache of a sequence [1].
        tokens : Number
            New tokens of each sequence [1].

        Returns
        -------
        Step
        """

    @abc.abstractmethod
    def prefill(
        self, scenario: Scenario, running: Any, context: Any, prompt: Any, group: Any, before: Any = 0.0
    ) -> tuple[Step, Any]:
        """Return the prefill of a group of prompts in one step, and the time that each takes from decoding.

        Parameters
        ----------
        scenario : Scenario
        running : Number
            Sequences that the replica runs [1].
        context : Number
            Mean tokens in the cache of a sequence that decodes [1].
        prompt : Number
            Tokens of each prompt that are computed [1].
        group : Number
            Prompts that are taken in at once, where prefill does not ride along [1].
        before : Number
            Tokens of each prompt that are in the cache already [1].

        Returns
        -------
        tuple of Step and Number
            The step, and the time that one prompt takes from decoding [s].
        """

    @abc.abstractmethod
    def closed_loop(self, scenario: Scenario, load: Load) -> Loop:
        """Return what a closed loop comes to on one replica, with or without a draft.

        Parameters
        ----------
        scenario : Scenario
        load : Load

        Returns
        -------
        Loop
        """

    def batch_prefill(self, scenario: Scenario, batch: Any, prompt: Any) -> Any:
        """Return the time of a static batch of prompts that nothing else disturbs: one after the other [s].

        Parameters
        ----------
        scenario : Scenario
        batch, prompt : Number
            Prompts, and tokens of each [1].

        Returns
        -------
        Number
            Time [s].
        """
        return batch * self.prefill(scenario, 1.0, prompt, prompt, 1.0)[0].time

    def next_prompt(self, scenario: Scenario, running: Any, prompt: Any, latency: Any, occupancy: Any) -> Any:
        """Return the time until the next prompt can start [s].

        Parameters
        ----------
        scenario : Scenario
        running : Number
            Requests that decode meanwhile [1].
        prompt : Number
            Tokens of the prompt [1].
        latency, occupancy : Number
            Time until its first token, and time that it takes from decoding [s].

        Returns
        -------
        Number
            Time [s].
        """
        return occupancy

    # --- layout --------------------------------------------------------------------------------------------------

    def layouts(self, scenario: Scenario) -> Iterator[tuple[float, float]]:
        """Give tensor-parallel degrees and stages to try of a model on a system.

        Parameters
        ----------
        scenario : Scenario
            Its own layout does not count.

        Returns
        -------
        iterator of tuple of float
        """
        for tp in sorted({float(plan.tp) for plan in scenario.system.plans}):
            yield tp, 1.0

    def unmeasured(self, scenario: Scenario) -> str:
        """Say which part of a layout no measurement stands behind, in a few words.

        Parameters
        ----------
        scenario : Scenario

        Returns
        -------
        str
            Empty where there is none.
        """
        return ""

    def check_plan(self, model: Model, system: System, plan: Deployment) -> None:
        """Refuse a layout or a precision that cannot run, before anything is computed.

        Parameters
        ----------
        model : Model
        system : System
        plan : Deployment

        Raises
        ------
        UserError
        """
        allowed = sorted({float(known.tp) for known in system.plans})
        if float(plan.tp) not in allowed:
            raise UserError(f"--tp {plan.tp:g}: {system.name} is laid out for TP {listed(allowed)}")

    def splits(self, model: Model, tp: float) -> bool:
        """Whether so many tensor ranks can hold a model.

        Parameters
        ----------
        model : Model
        tp : float
            Ranks [1].

        Returns
        -------
        bool
        """
        return True

    def end_stages(self, scenario: Scenario) -> Any:
        """Return the stages that hold nothing but embedding and head.

        Parameters
        ----------
        scenario : Scenario

        Returns
        -------
        Number
            Stages [1].
        """
        return 0.0

    def layer_stages(self, scenario: Scenario) -> Any:
        """Return the stages that hold layers.

        Parameters
        ----------
        scenario : Scenario

        Returns
        -------
        Number
            Stages [1].
        """
        return scenario.deployment.pp

    def stage_latency(self, system: System) -> float:
        """Return the latency between pipeline stages; 0 where none is published [s].

        Parameters
        ----------
        system : System

        Returns
        -------
        float
            Time [s].
        """
        hop = float(system.link.hop_latency)
        return hop if math.isfinite(hop) else 0.0

    # --- memory --------------------------------------------------------------------------------------------------

    def weights_memory(self, system: System) -> Tier:
        """Return the tier of a chip that holds weights.

        Parameters
        ----------
        system : System

        Returns
        -------
        Tier
        """
        return _tier(system, self.weights_tier)

    def cache_memory(self, system: System) -> Tier:
        """Return the tier of a chip that holds the cache.

        Parameters
        ----------
        system : System

        Returns
        -------
        Tier
        """
        return _tier(system, self.cache_tier)

    def reserve(self, system: System) -> tuple[Any, Any]:
        """Return the share of the memory that may be taken, and what neither weights nor cache get of it [B].

        Where an engine has a budget of its own, that one applies; by default all of the memory may be taken.

        Parameters
        ----------
        system : System

        Returns
        -------
        tuple of Number
        """
        return 1.0, 0.0

    # --- engines and drafts --------------------------------------------------------------------------------------

    def front_end(self, system: System) -> FrontEnd:
        """Return the front end of the engine; machines without measurements of one have none.

        Parameters
        ----------
        system : System

        Returns
        -------
        FrontEnd
        """
        return FrontEnd()

    def token_budget(self, system: System) -> Any:
        """Return the tokens of a step that the machine's program fixes, None where the engine is free to choose.

        Parameters
        ----------
        system : System

        Returns
        -------
        Number or None
            Tokens [1].
        """
        return None

    def drafting(self, target: Scenario, draft: Scenario) -> Scenario:
        """Return a draft as it runs beside its target.

        Parameters
        ----------
        target, draft : Scenario
            The draft on the system and plan of the target.

        Returns
        -------
        Scenario
        """
        return draft

    def verifying(self, system: System) -> System:
        """Return a system as it verifies drafted tokens.

        Parameters
        ----------
        system : System

        Returns
        -------
        System
        """
        return system

    # --- what it rests on ----------------------------------------------------------------------------------------

    def outside(self, scenario: Scenario) -> list[str]:
        """Return what of a question lies outside the calibrated range.

        Parameters
        ----------
        scenario : Scenario

        Returns
        -------
        list of str
        """
        return []

    def spreads(self, scenario: Scenario) -> tuple[float, float]:
        """Return logarithms of factors on TTFT and TPOT that hold 80 % of what the model leaves open.

        Parameters
        ----------
        scenario : Scenario

        Returns
        -------
        tuple of float
        """
        return UNMEASURED_SPREAD, UNMEASURED_SPREAD

    def warnings(self, scenario: Scenario, token: Mapping[str, Any], plain: Mapping[str, Any]) -> list[str]:
        """Return what to mind of an answer.

        Parameters
        ----------
        scenario : Scenario
        token, plain : mapping of str to Number
            Seconds of a token by cause, and those without a draft.

        Returns
        -------
        list of str
        """
        return []

    def draft_warnings(self) -> list[str]:
        """Return what to mind of a draft."""
        return []

    def collective(self, system: System, operation: str, ranks: float, message: float) -> Mapping[str, Any]:
        """Return the time of a collective by algorithm [s]; nothing where the links are not published.

        Parameters
        ----------
        system : System
        operation : str
            ``all-reduce`` or ``all-to-all``.
        ranks : float
            Chips of the group [1].
        message : float
            Bytes that each rank contributes [B].

        Returns
        -------
        mapping of str to Number
        """
        return {}

    def all_reduce(self, system: System, message: float) -> tuple[Any, Any] | None:
        """Return time and greatest rate of an all-reduce over its links, where its curve is published [s, B/s].

        Parameters
        ----------
        system : System
        message : float
            Bytes that each rank contributes [B].

        Returns
        -------
        tuple of Number, or None
        """
        return None


def machine_of(system: System) -> Machine:
    """Return the machine that runs a system.

    Parameters
    ----------
    system : System

    Returns
    -------
    Machine

    Raises
    ------
    UserError
        Where its kind is none that runs.
    """
    found = kind_of(system.kind)
    if not isinstance(found, Machine):
        raise UserError(f"kind '{system.kind}' is no perfmodel.machines.base.Machine")
    return found


def _tier(system: System, name: str) -> Tier:
    found = getattr(system.memory, name)
    assert isinstance(found, Tier), f"{system.name} has no {name}"
    return found


def listed(values: Any) -> str:
    """Return numbers in words.

    Parameters
    ----------
    values : iterable of float

    Returns
    -------
    str
    """
    return ", ".join(f"{value:g}" for value in values)
