"""Every registered equation, computed by pint in the units that its docstring gives, comes out in its registered unit.

Each argument enters as a pint quantity, once as documented and once in another multiple of its unit.  The result,
turned into the registered unit, must be the number that floats give: so a factor of 8, 3600 or 1e6 that belongs to a
unit is seen, which a look at dimensions alone passes.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pint
import pytest

import perfmodel.equations
from perfmodel.equation import REGISTRY, Equation
from perfmodel.numerics import FLOAT

PINT = pint.UnitRegistry()
# Neither a byte nor an operation nor a dollar is a bare number to us, as bytes are to pint.
for definition in ("Byte = [our_information]", "Bit = Byte / 8", "FLOP = [operation]", "USD = [money]"):
    PINT.define(definition)

#: Units as docstrings write them, and other multiples of them that arguments may just as well come in.
INSIDE = {
    "B": "Byte",
    "b": "Bit",
    "s": "second",
    "FLOP": "FLOP",
    "USD": "USD",
    "W": "watt",
    "J": "joule",
    "kg": "kg",
    "mm": "mm",
    "L": "liter",
}
OTHER = INSIDE | {"B": "gigaByte", "s": "hour", "FLOP": "teraFLOP", "W": "kilowatt", "J": "megajoule", "mm": "meter"}

#: Numbers that a module names and that have a unit: pint gets them with it.
CONSTANTS = {
    "engine_memory": {"_MIB": "B", "_ACTIVATION": "B", "_LOGIT": "B"},
    "power": {"_KWH": "J"},
    "tco": {"_HOUR": "s", "_YEAR": "s"},
}

#: Equations in which bare numbers have a unit that no docstring can give, and the reason: pint cannot know these, so
#: they are checked to have no other unit than that.
OF_NUMBERS = {
    "gemm_flops": ("FLOP", "2 operations a multiply-add"),
    "attention_flops": ("FLOP", "2 operations a multiply-add"),
    "state_flops": ("FLOP", "6 operations an element of the state"),
    "achieved_rate": ("FLOP", "2 operations a parameter"),
    "elementwise_traffic": ("B", "bytes of the elements that kernels read and write"),
    "scaled_latent_bytes": ("B", "bytes of latents, scales and positions, each in a format of its own"),
}

#: What a docstring leaves open, and the units it is tried with: for the result, for each argument.
OPEN = {
    "utilisation": [("1", {"work": "FLOP", "peak": "FLOP/s"}), ("1", {"work": "B", "peak": "B/s"})],
    "where_it_fits": [("s", {"value": "s"}), ("B", {"value": "B"})],
}

#: Arguments where not any positive number will do.
VALUES = {
    "distinct_experts": {"experts": 128.0, "top_k": 8.0},
    "exponential_wait": {"servers": 3.0, "load": 1.2},
    "single_server_wait": {"utilisation": 0.6},
    "wait_quantile": {"waiting": 0.6, "quantile": 0.9},
    "crossover_tokens": {"compute": 3.7, "load": 1.3},
    "priority_wait": {"above": 0.3, "through": 0.9},
}

EACH = pytest.mark.parametrize(
    "equation", REGISTRY.values(), ids=lambda equation: f"{equation.subject}.{equation.name}"
)


def unit(text: str, names: Mapping[str, str] = INSIDE) -> Any:
    """Return a unit as docstrings write it: ``B/s``, ``mm2``, ``1``."""
    words = re.sub(r"([A-Za-z]+)(\d?)", lambda part: f"{names[part[1]]}**{part[2] or 1}", text)
    return PINT.Unit("" if text == "1" else words)


def shared(*values: Any) -> tuple[Any, list[float]]:
    """Return the unit of the first quantity and all values in it; 0 and guards against 0 have any unit."""
    found = next((value.units for value in values if isinstance(value, PINT.Quantity)), unit("1"))
    numbers = []
    for value in values:
        free = not isinstance(value, PINT.Quantity) and abs(value) <= 1e-12
        numbers.append(value if free else PINT.Quantity(value).to(found).magnitude)
    return found, numbers


def apply(_: Any, name: str, *args: Any) -> Any:
    """Work out an operator of :mod:`perfmodel.numerics` on quantities."""
    match name:
        case "sqrt":
            return args[0] ** 0.5
        case "maximum" | "minimum":
            common, numbers = shared(*args)
        case "ceil_div":
            common, numbers = unit("1"), [PINT.Quantity(args[0] / args[1]).to("").magnitude, 1.0]
        case "switch_at":
            common, arms = shared(*args[2:])
            numbers = [*shared(*args[:2])[1], *arms]
        case "only_if":
            common, numbers = shared(args[1])
            numbers = [PINT.Quantity(args[0]).magnitude, *numbers]
        case _:
            common, numbers = unit("1"), [PINT.Quantity(arg).to("").magnitude for arg in args]
    return PINT.Quantity(FLOAT[name](*numbers), common)


PINT.Quantity.apply = apply  # type: ignore[attr-defined]


def documented(equation: Equation) -> dict[str, str]:
    """Return the unit of each parameter from the docstring: one for all names of an entry, or one for each."""
    text = inspect.getdoc(equation.function) or ""
    section = text.partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    found = {}
    for names, said in re.findall(r"^(\w+(?:, \w+)*) : Number\n((?:^ +.*\n?)+)", section, re.MULTILINE):
        units = re.findall(r"\[([^\]]+)\]", said)[-1].split(", ")
        parameters = names.split(", ")
        found.update(zip(parameters, units * len(parameters) if len(units) == 1 else units, strict=True))
    return found


def in_pint(function: Callable[..., Any], units: Mapping[str, str], values: Mapping[str, float]) -> Iterator[Any]:
    """Give what a function makes of quantities, as documented and in other multiples of their units."""
    for names in (INSIDE, OTHER):
        yield PINT.Quantity(
            function(
                **{
                    name: PINT.Quantity(value, unit(units[name])).to(unit(units[name], names))
                    for name, value in values.items()
                }
            )
        )


def test_a_factor_that_belongs_to_a_unit_is_seen():
    """Eighths of bits are bytes by dimension; pint divides by 8 once more when it turns them into bytes."""

    def size(*, bits: Any) -> Any:
        return bits / 8

    for found in in_pint(size, {"bits": "b"}, {"bits": 16.0}):
        assert found.to(unit("B")).magnitude == 16 / 8 / 8 != size(bits=16.0)


def test_all_modules_of_equations_are_imported_with_the_package():
    """Else their equations would be missing here, from the other tests of backends and from the equation book."""
    assert {module.name for module in pkgutil.iter_modules(perfmodel.equations.__path__)} == {
        equation.subject for equation in REGISTRY.values()
    }


def test_every_number_that_a_module_names_has_a_unit_or_is_pi():
    for subject in perfmodel.equations.__all__:
        named = vars(importlib.import_module(f"perfmodel.equations.{subject}"))
        numbers = {name for name, value in named.items() if type(value) in (int, float)}
        assert numbers - {"_PI"} == CONSTANTS.get(subject, {}).keys()


def test_exceptions_name_equations():
    assert OF_NUMBERS.keys() | OPEN.keys() | VALUES.keys() <= REGISTRY.keys()


@EACH
def test_units(equation: Equation, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {name: 1.3 + 1.2 * at for at, name in enumerate(equation.parameters)} | VALUES.get(equation.name, {})
    plain = equation.function(**values)
    module = importlib.import_module(equation.function.__module__)
    for name, text in CONSTANTS.get(equation.subject, {}).items():
        monkeypatch.setattr(module, name, PINT.Quantity(getattr(module, name), unit(text)))
    of_numbers, _ = OF_NUMBERS.get(equation.name, ("1", ""))
    for result, tried in OPEN.get(equation.name, [(equation.unit, {})]):
        units = documented(equation) | tried
        assert units.keys() == values.keys()
        for found in in_pint(equation.function, units, values):
            assert (found * unit(of_numbers)).to(unit(result)).magnitude == pytest.approx(plain, rel=1e-9)
