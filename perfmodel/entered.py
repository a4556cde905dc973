"""Which inputs entered an answer: what was asked to vary and moved nothing is named in it, with where it counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from perfmodel.specs.paths import get, provenance_of, put, put_all, quantities
from perfmodel.specs.types import Scenario
from perfmodel.trace import Ledger, Node

#: Numbers of a scenario: nested mappings and sequences of numbers and words.
Numbers = Callable[[Scenario], Any]

#: Said of what is written down for whoever reads a spec, and of no answer's equations.
SHOWN_ONLY = "no equation of such a system reads it"
#: Where an input counts whose answer can do without it, by its whole path; the first that fits is said.
_COUNTS = (
    (r"system\.memory\.(sram|ddr)\..*|system\.(tile|cores)", SHOWN_ONLY),
    (r"system\.chips_per_node", "it counts where nodes bound a group of chips, or are spared"),
    (r"system\.power\.(cap|chip_tdp)", "it counts where power follows the work"),
    (r"system\.link\.port.*", "it counts where system.link.bandwidth_per_direction is not given"),
    (r"traffic\.(prompt|output)_scv", "it counts under a rate, with --lengths lognormal"),
    (r"traffic\.arrival_scv", "it counts under a rate"),
    (r"traffic\.think_time", "it counts in simulate --concurrency"),
    (
        r"traffic\.(rounds|length_jitter|prefill_first|held_steps|concurrency)",
        "it counts for several clients, without a rate",
    ),
    (r"traffic\.prefix_hits", "it counts where nothing that is replayed says which blocks prompts share"),
    (r"traffic\.(prompt|output|lengths)", "what is replayed has lengths of its own"),
    (r"system\.(die|node|carbon)\..*|system\.power\.all_in_per_chip|economics\.grid_carbon", "it counts in tco"),
    (r"system\.price\.rent_per_chip", "it counts in tco, and where chips are rented"),
    (r"economics\.building.*", "it counts where the building is owned"),
    (r"economics\.colocation", "it counts where machines of one's own stand in rented space"),
    (r"economics\..*|system\.price\..*", "it counts where machines are owned, and in the cost of tokens"),
    (r"system\.power.*", "it counts in power and cost"),
    (r"system\.(rates|efficiency\.gemm_\w+)\..*", "it counts where weights compute at that precision"),
    (r"system\.efficiency\.attention_(memory|growth)\..*", "it counts for a cache of that precision"),
    (r"system\.efficiency\.expert_imbalance", "it counts where experts are spread over ranks"),
    (r"system\.efficiency\.(\w*expert_\w+)(\..*)?", "it counts for models with experts that run at that precision"),
    (r"system\.efficiency\.latent_time", "it counts for latent attention"),
    (r"system\.efficiency\.indexer_time", "it counts for sparse attention"),
    (r"system\.efficiency\.recurrent_(time|compute)", "it counts for recurrent layers"),
    (r"system\.efficiency\.(tpot|ttft)_spread\..*", "it counts in the bands of such models"),
    (
        r"system\.efficiency\.(call_latency|nccl_latency|nccl_growth|link_efficiency\..*)",
        "it counts for links over which nothing was measured",
    ),
    (r"system\.efficiency\.(all_reduce|link)_.*", "it counts where chips share a layer"),
    (r"system\.efficiency\.hop_latency", "it counts where system.link.hop_latency is given"),
    (r"system\.efficiency\.eager_launch", "it counts without CUDA graphs"),
    (r"system\.efficiency\.quantise_time", "it counts for weights of less than 16 bits"),
    (r"system\.efficiency\.(sample_time|kernel_boundary)", "it counts with an optimisation switched off"),
    (r"system\.network\..*|system\.efficiency\.stage_latency", "it counts between nodes and pipeline stages"),
    (r"system\.link\..*|system\.efficiency\.all_reduce\..*", "it counts between chips of one node that share a layer"),
    (r"system\.engine\.max_sequences", "it counts under a rate"),
    (r"system\.engine\.group_sequences", "it counts in large tensor-parallel groups"),
    (r"(speculation\.)?model\..*\.node_limit", "it counts where experts are spread over nodes"),
    (r"deployment\.ep", "it counts for models with experts"),
    (r"model\.max_context", "it counts in fit"),
    (r"(speculation\.)?model\..*\.q_lora_rank", "it counts where queries go through latents"),
)


def counts(path: str) -> str:
    """Return where an input counts.

    Parameters
    ----------
    path : str
        Full path.

    Returns
    -------
    str
        Empty where nothing is known to say.
    """
    return next((words for form, words in _COUNTS if re.fullmatch(form, path)), "")


#: What is said of an input that was given and moved nothing.
_NOTHING, _NOT_ENTERED = "moved nothing in this answer", "did not enter this answer"


def is_idle(line: str) -> bool:
    """Whether a line names an input that was given and moved nothing: one that no answer keeps to itself.

    Parameters
    ----------
    line : str

    Returns
    -------
    bool
    """
    return _NOTHING in line or _NOT_ENTERED in line


def said(path: str, entered: bool, why: str = "") -> str:
    """Return the line that names an input which moved nothing.

    Parameters
    ----------
    path : str
        Full path.
    entered : bool
        Whether the answer depends on it all the same, where something else decides.
    why : str
        Why it did not enter; where it counts if not given.

    Returns
    -------
    str
    """
    if entered:
        return f"{path} {_NOTHING}: something else decides"
    words = why or counts(path)
    return f"{path} {_NOT_ENTERED}" + (f": {words}" if words else "")


def as_nodes(ledger: Ledger, scenario: Scenario) -> Scenario:
    """Return a scenario with every quantity of every spec a traced node.

    Parameters
    ----------
    ledger : Ledger
        Open; it gets the inputs with their provenance.
    scenario : Scenario
        All numbers floats.

    Returns
    -------
    Scenario
    """
    nodes = {}
    for path, unit, value in quantities(scenario):
        source = provenance_of(scenario, path)
        nodes[path] = ledger.input(path, float(value), unit, f"{source.source} ({source.kind})")
    traced: Scenario = put_all(scenario, nodes)
    return traced


def entered(scenario: Scenario, numbers: Numbers) -> frozenset[str]:
    """Return the paths of the inputs on which an answer depends at the values that they have.

    Parameters
    ----------
    scenario : Scenario
        All numbers floats.
    numbers : callable
        Gives the answer to a scenario whose numbers are nodes.

    Returns
    -------
    frozenset of str
        What a factor of zero takes out is not among them; the lesser operand of a maximum is.
    """
    with Ledger() as ledger:
        answer = numbers(as_nodes(ledger, scenario))
    return frozenset(ledger.reached(_leaves(answer), acting=True))


def unmoved(scenario: Scenario, numbers: Numbers) -> list[str]:
    """Return the paths of a question's changes that moved nothing of its answer.

    Parameters
    ----------
    scenario : Scenario
        With what ``changed``.
    numbers : callable
        Gives all that the answer says of a scenario.

    Returns
    -------
    list of str
    """
    asked = replace(scenario, changed=())
    changed = [(path, before) for path, before in scenario.changed if not same(before, get(asked, path))]
    if not changed:
        return []
    now = numbers(asked)
    return [path for path, before in changed if same(now, numbers(put(asked, path, before)))]


def idle(scenario: Scenario, paths: Sequence[str], traced: Numbers, why: str = "") -> list[str]:
    """Return a line for each of some inputs that moved nothing.

    Parameters
    ----------
    scenario : Scenario
    paths : sequence of str
        From :func:`unmoved`.
    traced : callable
        Gives those numbers of the answer that nodes can be followed to.
    why : str
        Why an input does not enter; where it counts if not given.

    Returns
    -------
    list of str
    """
    if not paths:
        return []
    reached = entered(replace(scenario, changed=()), traced)
    return [said(path, path in reached or isinstance(get(scenario, path), str | bool), why) for path in paths]


_NUMBERS = float | int | np.ndarray | np.generic


def same(first: Any, other: Any) -> bool:
    """Whether two answers are the same in every number and word; what does not exist equals itself.

    Parameters
    ----------
    first, other : Any
        Nested mappings and sequences.

    Returns
    -------
    bool
    """
    if isinstance(first, Mapping):
        alike = isinstance(other, Mapping) and first.keys() == other.keys()
        return alike and all(same(value, other[key]) for key, value in first.items())
    if isinstance(first, tuple | list):
        return isinstance(other, tuple | list) and len(first) == len(other) and all(map(same, first, other))
    if isinstance(first, _NUMBERS) and isinstance(other, _NUMBERS):
        return np.array_equal(np.asarray(first, dtype=float), np.asarray(other, dtype=float), equal_nan=True)
    return type(first) is type(other) and bool(first == other)


def _leaves(part: Any) -> Iterator[Node]:
    if isinstance(part, Mapping):
        for value in part.values():
            yield from _leaves(value)
    elif isinstance(part, tuple | list):
        for value in part:
            yield from _leaves(value)
    elif isinstance(part, Node):
        yield part
