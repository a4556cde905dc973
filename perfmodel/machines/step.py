"""The step of a machine: operators, what overlaps, and what limits it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from perfmodel.equations import roofline
from perfmodel.numerics import Number, total
from perfmodel.trace import scope

CAUSES = ("compute", "memory", "collective", "overhead", "host", "wait")


@dataclass(frozen=True)
class Pass:
    """One forward pass: so many sequences, each with new tokens on top of a context.

    ``decoding`` says which form of latent attention runs: the absorbed one, which reads latents, or the expanded one.
    """

    sequences: Number
    tokens: Number
    context: Number
    decoding: bool = False


@dataclass(frozen=True)
class Exchange:
    """Vectors that go to the ranks of their experts, and back.

    Attributes
    ----------
    elements : Number
        Of the vectors of all tokens of the tensor-parallel group, each once [1].
    copies : Number
        Experts of a token [1].
    node_limit : Number or None
        Most nodes on which the experts of a token lie; None where the router does not care [1].
    forwarded : bool
        Whether a vector crosses to a node once and is handed on there, as kernels for many tokens do; those for few
        tokens send every copy by itself.
    """

    elements: Any
    copies: Any
    node_limit: Any
    forwarded: bool


#: Passes that a machine runs in one step, as a mixed batch does.
Work = tuple[Pass, ...]


@dataclass(frozen=True)
class Operator:
    """Work of one instance of an operator over the whole tensor-parallel group.

    Attributes
    ----------
    name : str
    kind : str
        ``gemm`` or ``attention``: which efficiencies apply.
    count : Number
        Instances in the model.
    flops : Number
        Work [FLOP].
    weights, cache, activations : Number
        Bytes of weights, of KV cache or state, and of activations that one instance moves [B].
    precision : str
        Storage of the weights.
    shards : Number or None
        Chips among which the weights are split, where that is not the tensor-parallel degree.
    cache_shards : Number
        Parts into which GPUs can split the cache.
    streamed : Number or None
        Weights read where every token runs its own experts [B].
    padding : Number
        Work on rows that only fill a tile [FLOP].
    all_reduce : Number or None
        Message of the sum over the tensor-parallel group that follows [B].
    exchange : Exchange or None
        What goes to the other expert-parallel ranks and back.
    """

    name: str
    kind: str
    count: Number
    flops: Number
    weights: Number
    cache: Number
    activations: Number
    precision: str
    shards: Any = None
    cache_shards: Number = 1.0
    streamed: Any = None
    padding: Any = 0.0
    all_reduce: Any = None
    exchange: Exchange | None = None


@dataclass(frozen=True)
class Overlap:
    """Arithmetic and traffic of an operator that overlap, so many times over [s]."""

    count: Any
    compute: Any
    memory: Any
    operator: str = "other"


@dataclass(frozen=True)
class Load:
    """FLOPs of all chips and bytes that each of so many chips moves for an operator, so many times over."""

    count: Any
    flops: Any
    moved: Any
    chips: Any = 1.0
    operator: str = "other"


@dataclass(frozen=True)
class Step:
    """Time of a forward step by cause [s], and what it did on all chips together.

    ``busy`` is the time of all overlaps; to which side each of them goes, and how much work the loads are, is worked
    out only when asked for.
    """

    busy: Any = 0.0
    overlaps: tuple[Overlap, ...] = ()
    imbalance: Any = 0.0
    collective: Any = 0.0
    overhead: Any = 0.0
    host: Any = 0.0
    loads: tuple[Load, ...] = ()
    sequences: Any = 1.0

    @functools.cached_property
    def flops(self) -> Any:
        """Work of all chips [FLOP]."""
        return total(load.count * load.flops for load in self.loads)

    @functools.cached_property
    def bytes_moved(self) -> Any:
        """Memory traffic of all chips [B]."""
        return total(load.count * load.chips * load.moved for load in self.loads)

    @functools.cached_property
    def compute(self) -> Any:
        """Seconds of the operators that arithmetic decides."""
        return _repeated(self.overlaps, roofline.compute_bound_time)

    @functools.cached_property
    def memory(self) -> Any:
        """Seconds of the operators that traffic decides, and of stages that wait for a slower one's traffic."""
        return _repeated(self.overlaps, roofline.memory_bound_time) + self.imbalance

    @functools.cached_property
    def time(self) -> Any:
        """Seconds of the whole step."""
        return self.busy + self.overhead + (self.imbalance + self.collective + self.host)

    def times(self, runs: Any) -> Step:
        """Return this step run so many times over, for the same sequences.

        Parameters
        ----------
        runs : Number
            How often [1].

        Returns
        -------
        Step
        """
        return Step(
            busy=runs * self.busy,
            overlaps=tuple(replace(part, count=runs * part.count) for part in self.overlaps),
            imbalance=runs * self.imbalance,
            collective=runs * self.collective,
            overhead=runs * self.overhead,
            host=runs * self.host,
            loads=tuple(replace(load, count=runs * load.count) for load in self.loads),
            sequences=self.sequences,
        )

    def of(self, whose: str) -> Step:
        """Return this step with the owner's name before those of its operators.

        Parameters
        ----------
        whose : str

        Returns
        -------
        Step
        """
        return replace(
            self,
            overlaps=tuple(replace(part, operator=f"{whose}.{part.operator}") for part in self.overlaps),
            loads=tuple(replace(load, operator=f"{whose}.{load.operator}") for load in self.loads),
        )

    def after(self, other: Step) -> Step:
        """Return this step and another one before it; work is counted for the sequences of this one.

        Parameters
        ----------
        other : Step
            The one before.

        Returns
        -------
        Step
        """
        share = self.sequences / other.sequences
        return Step(
            busy=other.busy + self.busy,
            overlaps=(*other.overlaps, *self.overlaps),
            imbalance=other.imbalance + self.imbalance,
            collective=other.collective + self.collective,
            overhead=other.overhead + self.overhead,
            host=other.host + self.host,
            loads=(*(replace(load, count=share * load.count) for load in other.loads), *self.loads),
            sequences=self.sequences,
        )


def busy_time(overlaps: Iterable[Overlap]) -> Any:
    """Return the time of overlaps, each as long as its slower side [s].

    Parameters
    ----------
    overlaps : iterable of Overlap

    Returns
    -------
    Number
        Time [s].
    """
    return _repeated(overlaps, roofline.operator_time)


def _repeated(overlaps: Iterable[Overlap], time: Callable[..., Any]) -> Any:
    """Return the time of overlaps; those of a layer add up before its count multiplies them, which on arrays counts."""

    def timed(part: Overlap) -> Any:
        with scope(part.operator):
            return time(compute=part.compute, memory=part.memory)

    layers = (list(group) for _, group in groupby(overlaps, key=lambda part: id(part.count)))
    return total(parts[0].count * total(map(timed, parts)) for parts in layers)


def tokens_of(work: Work) -> Any:
    """Return the tokens of all passes of a step.

    Parameters
    ----------
    work : Work

    Returns
    -------
    Number
    """
    return total(part.sequences * part.tokens for part in work)
