"""Products of matrices as operators, and the message that sums their parts over chips."""

from __future__ import annotations

from typing import Any

from perfmodel.equations import memory, transformer
from perfmodel.machines.kv_cache import (
    ACTIVATION_BYTES,
)
from perfmodel.machines.step import Operator
from perfmodel.machines.weight_bytes import Storage
from perfmodel.specs.types import (
    Scenario,
)
from perfmodel.trace import scope


def gemm(name: str, tokens: Any, parameters: Any, width: Any, count: Any, storage: Storage, **more: Any) -> Operator:
    """Return a product with weights: tokens meet each parameter once.

    Parameters
    ----------
    name : str
    tokens, parameters, width, count : Number
    storage : Storage
    **more
        Fields of what is returned.

    Returns
    -------
    Operator
    """
    with scope(name):
        return Operator(
            name=name,
            kind="gemm",
            count=count,
            flops=transformer.gemm_flops(tokens=tokens, parameters=parameters),
            weights=memory.weight_bytes(parameters=parameters, bytes_per_parameter=storage.element),
            cache=0.0,
            activations=transformer.activation_traffic(tokens=tokens, width=width, bytes_per_element=ACTIVATION_BYTES),
            precision=storage.precision,
            **more,
        )


def summed_message(scenario: Scenario, tokens: Any) -> Any:
    """Message of the sum over the tensor-parallel group after a block [B].

    Parameters
    ----------
    scenario : Scenario
    tokens : Number
        Tokens of the step [1].

    Returns
    -------
    Number
        Bytes [B].
    """
    return transformer.activation_traffic(
        tokens=tokens, width=scenario.model.hidden, bytes_per_element=ACTIVATION_BYTES
    )
