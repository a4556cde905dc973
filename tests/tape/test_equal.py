"""A program runs as NumPy calls, as C and as JSON, and gives what the equations give on arrays."""

import json
import math
import os

import numpy as np
import pytest

from perfmodel.errors import UserError
from perfmodel.question import Options, resolve
from perfmodel.specs import catalog
from perfmodel.specs.paths import get, put_all, quantities, range_at
from perfmodel.sweeps.space import evaluate_grid
from perfmodel.tape import answers, arrays, c, interchange, kernel, library
from perfmodel.tape.numbered import Builder
from perfmodel.trace import OPERATIONS

SETTINGS = 200
#: With every system and every model, which takes an hour.
EVERY = os.environ.get("PERFMODEL_EVERY_TRACE") == "1"
PROGRAMS = {
    f"{model} on {on}": (model, on, more)
    for model, on, more in (
        ("llama-3.1-70b", "dgx-h100", {"precision": "fp8"}),
        ("deepseek-v3", "dgx-h200", {}),
        ("gpt-oss-120b", "dgx-b200", {}),
        ("llama-3.1-70b", "lpu-v1", {}),
        ("deepseek-v3.2", "lpu-v1", {}),
        ("llama-3.1-70b", "sn40l-16", {}),
        ("jamba-v0.1", "sn40l-16", {}),
        ("qwen3-next-80b-a3b", "dgx-h100", {}),
        ("llama-3.1-405b", "dgx-h200", {"draft": "llama-3.2-1b", "k": 4.0, "alpha": 0.8}),
    )
}
#: The closed loop has roots that are differences of nearly equal numbers, so that a last digit grows to this at worst.
CLOSE = 1e-12
NEEDS_CC = pytest.mark.skipif(not library.compiler(), reason="there is no C compiler")


def settings(scenario, count=SETTINGS, seed=0):
    """Draw values of traffic, and of a dozen other inputs around their own; in places the model does not fit."""
    random = np.random.default_rng(seed)
    values = {
        "traffic.concurrency": np.ceil(np.exp(random.uniform(0, 7, count))),
        "traffic.prompt": np.exp(random.uniform(3, 10, count)),
        "traffic.output": np.exp(random.uniform(1, 8, count)),
    }
    given = [path for path, _, value in quantities(scenario) if value == value and value and path not in values]
    for path in random.choice(given, 12, replace=False):
        moved = get(scenario, path) * random.uniform(0.7, 1.4, count)
        if range_at(scenario, path).fault(moved) is None:
            values[str(path)] = moved
    return values


def flat(scenario, values):
    placed = put_all(scenario, values)
    with np.errstate(all="ignore"):
        results = answers.asked().results(placed)
    return {name: np.broadcast_to(value, len(values["traffic.prompt"])) for name, value in results.items()}


def worst(found, expected):
    """Return the largest relative difference, where NaN stands for NaN; a cause counts as a part of its phase."""
    off = 0.0
    for name, value in expected.items():
        mine = np.broadcast_to(found[name], value.shape)
        np.testing.assert_array_equal(np.isnan(mine), np.isnan(value), err_msg=name)
        phase = name.rpartition(".")[0]
        parts = [one for other, one in expected.items() if phase.startswith("breakdown.") and other.startswith(phase)]
        scale = sum(np.abs(part) for part in parts) if parts else np.abs(value)
        there = np.isfinite(value) & (value != mine)
        assert np.array_equal(mine[np.isinf(value)], value[np.isinf(value)]), name
        if there.any():
            off = max(off, float(np.max(np.abs(mine - value)[there] / scale[there])))
    return off


@pytest.fixture(scope="module", params=PROGRAMS)
def asked(request):
    model, on, more = PROGRAMS[request.param]
    scenario = resolve(model, on, Options(**more))
    values = settings(scenario)
    first = put_all(scenario, {path: float(column[0]) for path, column in values.items()})
    program = kernel.traced(answers.asked().results, first)
    return scenario, values, program, flat(scenario, values)


def compiled(program, axes):
    source = c.source(program, axes)
    run = library.compile(source.text)
    return kernel.Kernel(run, source.fixed, source.varying, source.results, source.tables)


def fixed_of(made, scenario):
    return np.array(list(kernel.inputs_of(made.fixed, scenario).values()))


def test_numpy_calls_give_the_same_bits(asked):
    scenario, values, program, expected = asked
    found = arrays.over(program, kernel.inputs_of(program.inputs, scenario), dict.fromkeys(values, 0), values)
    assert worst(found, expected) == 0


@NEEDS_CC
def test_c_gives_the_same(asked, folder):
    scenario, values, program, expected = asked
    made = compiled(program, dict.fromkeys(values, 0))
    assert worst(made(fixed_of(made, scenario), values, [SETTINGS]), expected) <= CLOSE


def test_json_gives_the_same(asked):
    """By an interpreter of a few lines, which knows of the program nothing but the JSON."""
    scenario, values, _, expected = asked
    first = put_all(scenario, {path: float(column[0]) for path, column in values.items()})
    said = json.loads(json.dumps(interchange.of(first), allow_nan=False))
    assert (said["format"], said["version"]) == ("perfmodel-program", 1)
    for at in range(3):
        inputs = {path: float(column[at]) for path, column in values.items()}
        found = []
        for kind, *args in said["steps"]:
            if kind == "constant":
                found.append(float(args[0]))
            elif kind == "input":
                path = said["inputs"][args[0]][0]
                found.append(inputs.get(path, get(scenario, path)))
            else:
                found.append(OPERATIONS[kind](*(found[arg] if isinstance(arg, int) else arg for arg in args)))
        mine = {name: np.array([found[number]]) for name, number in said["results"].items()}
        assert worst(mine, {name: value[[at]] for name, value in expected.items()}) <= CLOSE


@NEEDS_CC
@pytest.mark.parametrize("last", [3, 50])
def test_a_grid_is_the_product_of_its_axes(folder, last, monkeypatch):
    """Short and long last axes, in parts and whole, with an axis that decides nothing."""
    scenario = resolve("llama-3.1-70b", "dgx-h100", Options(precision="fp8"))
    axes = {
        "traffic.concurrency": np.array([1.0, 7.0, 64.0, 900.0, 12.0]),
        "traffic.prompt": np.geomspace(10, 60000, 37),
        "economics.pue": np.array([1.1, 1.3]),
        "system.memory.hbm.bandwidth": np.linspace(1e12, 8e12, last),
        "traffic.output": np.array([16.0, 700.0]),
    }
    expected = evaluate_grid(scenario, axes)
    monkeypatch.setattr(kernel, "NUMBER_AT", 0)
    for compile_at, at_once in ((math.inf, 2**20), (0, 2**20), (0, 1000)):
        monkeypatch.setattr(kernel, "COMPILE_AT", compile_at)
        monkeypatch.setattr(kernel, "_AT_ONCE", at_once)
        found = evaluate_grid(scenario, axes)
        for field in ("metrics", "memory", "breakdown"):
            for name, value in getattr(expected, field).items():
                if field == "breakdown":
                    for cause in value:
                        total = sum(np.abs(part) for part in value.values())
                        np.testing.assert_allclose(
                            found.breakdown[name][cause] / total, value[cause] / total, atol=CLOSE
                        )
                    continue
                mine = getattr(found, field)[name]
                np.testing.assert_allclose(mine, value, rtol=CLOSE)
                # An array carries only the axes that it depends on.
                assert np.ndim(mine) == 0 or np.shape(mine) == np.shape(value), name
        np.testing.assert_array_equal(found.fits, expected.fits)
    assert kernel._kernels


@NEEDS_CC
def test_every_operation_alone(folder):
    """On values on either side of every turn, against the functions on arrays."""
    edges = np.array(
        [-2.0, -1.0, -0.4, 0.0, 1e-12, 0.3, 0.5, 1.0 - 1e-5, 1.0, 1.0 + 1e-10, 1.7, 3.0, 40.0, math.inf, math.nan]
    )
    for kind in OPERATIONS:
        builder = Builder()
        a, b = np.repeat(edges, len(edges)), np.tile(edges, len(edges))
        names = {"a": a, "b": b}
        nodes = [builder.input(name) for name in names]
        shape = {"interpolate": [nodes[0]], "switch_at": [*nodes, builder.constant(3.0), builder.constant(4.0)]}
        arity = 1 if kind in ("exp", "log", "sqrt", "floor", "neg") else 2
        knots = ((-1.0, 2.0), (0.5, 3.0), (2.0, -4.0)) if kind == "interpolate" else None
        program = builder.finish({"is": builder.apply(kind, *shape.get(kind, nodes[:arity]), value=knots)})
        if kind == "erlang_b":
            names = {"a": np.minimum(np.abs(a), 50.0), "b": np.abs(b)}
        axes = dict.fromkeys(program.inputs, 0)
        values = {path: names[path] for path in axes}
        expected = arrays.over(program, {}, axes, values)["is"]
        found = compiled(program, axes)(np.zeros(0), values, [len(a)])["is"]
        with np.errstate(all="ignore"):
            same = (found == expected) | (np.isnan(found) & np.isnan(expected))
            near = np.abs(found - expected) <= 1e-14 * np.abs(expected)
        where = np.flatnonzero(~(same | near))
        assert not len(where), (kind, [(a[at], b[at], found[at], expected[at]) for at in where[:5]])


# --- every program, for whoever has an hour ------------------------------------------------------------------------

pairs = [(model, on) for on, _, _ in catalog.entries("system") for model, _, _ in catalog.entries("model")]


@pytest.mark.nightly
@pytest.mark.skipif(not EVERY, reason="takes an hour: PERFMODEL_EVERY_TRACE=1")
@pytest.mark.parametrize(("model", "on"), pairs if EVERY else [])
def test_every_model_on_every_system(model, on, folder):
    try:
        scenario = resolve(model, on, Options())
    except UserError as refused:
        pytest.skip(str(refused))
    values = settings(scenario)
    first = put_all(scenario, {path: float(column[0]) for path, column in values.items()})
    program = kernel.traced(answers.asked().results, first)
    made = compiled(program, dict.fromkeys(values, 0))
    assert worst(made(fixed_of(made, scenario), values, [SETTINGS]), flat(scenario, values)) <= CLOSE
