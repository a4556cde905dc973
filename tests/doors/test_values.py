"""One rule for a value at every door: a file, --set, an axis, an option, Python, a workbook's cell, a page's slider."""

from __future__ import annotations

import json
from functools import cache

import openpyxl
import pytest
from programs import run_node
from ruamel.yaml import YAML

import perfmodel
from perfmodel.cli import run
from perfmodel.compilers import whatif, workbook
from perfmodel.compilers.offers import ask_each, offer
from perfmodel.question import FIELDS, Options, resolve
from perfmodel.specs import catalog
from perfmodel.specs.files import read_yaml
from perfmodel.specs.paths import get, quantities, range_at
from perfmodel.specs.types import Economics, Model, System, Traffic
from perfmodel.specs.units import parse, show, unit_factor

H100 = ("llama-3.1-8b", "dgx-h100:tp=1")
LPU = ("llama-3.1-8b", "lpu-v1")
SN40L = ("llama-3.1-8b", "sn40l-8")

#: Path and what nobody can mean there, by the question in which it stands.
BAD = [
    *(
        (H100, path, value)
        for path, values in {
            "system.memory.hbm.bandwidth": ["0 B/s", "-1 TB/s", "3.35", "3 TB", "3 parsec", "nan", "inf", "1e999 B/s"],
            "system.memory.hbm.capacity": ["0 B", "-80 GB", "80", "80 GB/s", "many"],
            "system.rates.bf16": ["989", "0 FLOP/s", "-1 TFLOP/s", "1 PB/s", "x0", "-100%"],
            "system.link.bandwidth_per_direction": ["450", "0 B/s", "450 Gs"],
            "system.efficiency.gemm_memory.bf16": ["1.2", "-0.1", "0", "120%", "x2"],
            "system.efficiency.gemm_compute.bf16": ["2", "0"],
            "system.efficiency.attention_compute": ["2", "-1", "0"],
            "system.efficiency.expert_compute.bf16": ["2", "0"],
            "system.efficiency.expert_memory": ["1.01"],
            "system.efficiency.expert_imbalance": ["0.5"],
            "system.efficiency.layer_time": ["20", "-20 us", "20 W"],
            "system.efficiency.tpot_spread.dense": ["-0.1"],
            "system.efficiency.prefill_group": ["0"],
            "system.engine.memory_utilisation": ["5", "0", "-0.9", "90"],
            "system.engine.block_tokens": ["0", "1.5", "-16"],
            "system.engine.max_sequences": ["0", "0.5"],
            "system.chips_per_node": ["0", "4.5", "-8"],
            "system.power.cap": ["1.5", "0", "-1"],
            "system.power_shape.idle": ["3", "-0.1"],
            "system.price.system": ["-1 USD", "300", "300k", "300 EUR"],
            "system.die.dies_per_package": ["0", "1.5", "1e6", "x1e6"],
            "traffic.prompt": ["0", "-5", "0.5", "1,000", "1e12", "4 GB"],
            "traffic.output": ["0", "-1", "1e10"],
            "traffic.concurrency": ["0", "-4", "0.5", "1e250", "1e10", "many", "nan"],
            "traffic.rounds": ["0", "-1"],
            "traffic.held_steps": ["-1"],
            "traffic.length_jitter": ["5", "1", "-0.2"],
            "traffic.prefix_hits": ["1", "1.5", "-0.1", "100%"],
            "traffic.prompt_scv": ["-1", "1e6"],
            "traffic.arrival_scv": ["-1", "1e7"],
            "traffic.think_time": ["5", "-1 s"],
            "model.hidden": ["0", "1.5", "-4096", "4096 B"],
            "model.layers.0.count": ["0.5", "0", "-1"],
            "model.layers.0.attention.heads": ["1.5", "0"],
            "model.layers.0.attention.kv_heads": ["3", "0", "1.5"],
            "model.precision": ["fp7", "BF16", ""],
            "deployment.tp": ["0", "1.5", "-1", "1e9"],
            "deployment.dp": ["0", "0.5"],
            "deployment.precision": ["fp12"],
            "economics.utilisation": ["60", "0", "-0.5", "1.01"],
            "economics.residual": ["5", "-0.1"],
            "economics.pue": ["0.1", "0", "-1", "11"],
            "economics.life": ["5", "0 s", "-4 year", "4 GB"],
            "economics.building_life": ["12", "0 s"],
            "economics.network": ["500", "-0.1"],
            "economics.cost_of_capital": ["10", "-0.1"],
            "economics.provisioned": ["2"],
            "economics.electricity": ["0.08", "0.08 USD", "-1 USD/kWh", "2 USD/J"],
            "economics.ownership": ["stolen", "Rented", "true"],
            "economics.maintenance": ["5", "-0.05"],
            "economics.staff": ["2", "-0.02"],
            "economics.spares": ["1.5", "-1"],
            "economics.storage": ["30", "-0.1"],
            "economics.colocation": ["150", "-150 USD/kW-month"],
            "economics.building": ["11", "11 USD/kWh"],
            "economics.grid_carbon": ["370", "370 g"],
            "system.price.rent_per_chip": ["2.9", "2.9 USD", "-2 USD/h"],
            "system.carbon.embodied_per_chip": ["164", "-1 kg"],
            "system.power.chip_tdp": ["700", "0 W", "-700 W"],
            "system.die.area": ["814", "0 mm2", "-1 mm2"],
            "system.efficiency.link_efficiency.switch": ["1.5", "0"],
            "system.efficiency.expert_evenness": ["0", "1.1"],
            "system.engine.kv_pool": ["40", "-1 GB"],
            "system.engine.batched_tokens": ["0", "-8192"],
            "traffic.output_scv": ["-0.5", "1e9"],
            "model.vocab": ["0", "128256.5"],
            "model.max_context": ["0", "131,072"],
            "model.towers": ["-1", "0.5"],
            "deployment.pp": ["0", "2.5"],
            "deployment.ep": ["0", "-8"],
            "deployment.kv_precision": ["fp3"],
        }.items()
        for value in values
    ),
    *(
        (LPU, path, value)
        for path, values in {
            "system.efficiency.memory": ["3", "0", "-1"],
            "system.efficiency.compute": ["0", "1.5"],
            "system.efficiency.beat": ["fixd"],
            "system.efficiency.token_budget": ["0"],
            "system.efficiency.decode_first": ["yes", "1"],
            "system.memory.sram.capacity": ["230", "0 B"],
            "system.link.topology": ["mesh9"],
            "system.tile": ["0", "0.5"],
        }.items()
        for value in values
    ),
    *(
        (SN40L, path, value)
        for path, values in {
            "system.efficiency.compute": ["1.5", "0"],
            "system.efficiency.offloaded_tokens": ["0", "-1"],
            "system.efficiency.kernel_looping": ["maybe"],
            "system.efficiency.memory_utilisation": ["2"],
        }.items()
        for value in values
    ),
]
#: What people write, and what it is inside.
GOOD = [
    (H100, "system.memory.hbm.bandwidth", "3.9 TB/s", 3.9e12),
    (H100, "system.memory.hbm.capacity", "80GB", 80e9),
    (H100, "system.memory.hbm.capacity", "80 GiB", 80 * 2.0**30),
    (H100, "system.price.system", "300k USD", 300e3),
    (H100, "system.price.system", "0.3 MUSD", 300e3),
    (H100, "economics.electricity", "12 ct/kWh", 0.12 / 3.6e6),
    (H100, "economics.electricity", "0.12 USD/kWh", 0.12 / 3.6e6),
    (H100, "economics.life", "5 years", 5 * 365 * 86400.0),
    (H100, "economics.utilisation", "60%", 0.6),
    (H100, "traffic.prompt", "4k", 4000.0),
    (H100, "traffic.prompt", "4Ki", 4096.0),
    (H100, "traffic.concurrency", "1.2k", 1200.0),
]


@cache
def asked(model, on):
    return resolve(model, on, Options())


def after(text):
    """Return a refusal without the door's name."""
    return text.strip().split(": ", 1)[1]


def at_set(question, path, value):
    with pytest.raises(perfmodel.UserError) as error:
        perfmodel.predict(question[0], on=question[1], set=[f"{path}={value}"])
    assert "\n" not in str(error.value)
    return str(error.value)


def at_axis(question, path, value):
    with pytest.raises(perfmodel.UserError) as error:
        perfmodel.sweep(question[0], on=question[1], axes={path: value})
    assert "\n" not in str(error.value)
    return str(error.value)


def test_there_are_enough_of_them():
    assert len(BAD) >= 200
    assert len(set(BAD)) == len(BAD)


@pytest.mark.parametrize(
    ("question", "path", "value"), BAD, ids=lambda part: part if isinstance(part, str) else part[1]
)
def test_a_bad_value_is_refused_by_every_door_in_the_same_words(question, path, value, tmp_path, capsys):
    said = at_set(question, path, value)
    if value and "," not in value:
        assert after(at_axis(question, path, value)).removeprefix(f"{path}: ") in said
    root, _, rest = path.partition(".")
    scenario = asked(*question)
    assert said.startswith(f"--set {path}") or rest.split(".")[-1] in ("tp", "kv_heads")
    options = {field: name for name, (kind, field) in FIELDS.items() if kind.__name__.lower() == root}
    if rest in options and options[rest] not in ("prompt", "output"):
        flag = f"--{options[rest].replace('_', '-')}"
        code = run(["predict", question[0], "--on", question[1].partition(":")[0], flag, value])
        err = capsys.readouterr().err
        assert code == 2
        assert after(err.removeprefix("perfmodel: ")) == after(said)
    # A file says what is not part of an engine's calibration, and nothing relative.
    elsewhere = "efficiency" in path or ".engine." in path or "_shape" in path or root == "deployment"
    if value and not (elsewhere or value.startswith("x") or value == "-100%"):
        in_file = at_file(root, scenario, rest, value, tmp_path)
        # What is likely is told from the old value, which a file that is new does not have.
        assert after(said).partition(" has no unit: ")[0] in in_file
    # The same number from Python, where it is one and would be read as inside.
    try:
        number = float(value)
    except ValueError:
        return
    if " has no unit" not in said and not said.endswith("false, found '1'"):
        with pytest.raises(perfmodel.UserError) as error:
            perfmodel.predict(question[0], on=question[1], set={path: number})
        assert after(str(error.value)) == after(said)


KINDS = {"system": System, "model": Model, "traffic": Traffic, "economics": Economics}


def at_file(root, asked, path, value, folder):
    """Return what is said of a file that changes one value of a bundled one."""
    base = {
        "system": f"hardware_specs/{asked.system.name}.yaml",
        "model": f"workloads/models/{asked.model.name}.yaml",
        "traffic": "workloads/traffic/chat.yaml",
        "economics": "hardware_specs/economics.yaml",
    }[root]
    content = read_yaml(catalog.roots()[-1] / base)
    here = content
    *above, last = path.split(".")
    for key in above:
        here = here[int(key)] if isinstance(here, list) else here.setdefault(key, {})
    unit = range_at(asked, f"{root}.{path}") if not isinstance(get(asked, f"{root}.{path}"), str) else None
    here[last] = {"value": value, "source": "plan-choice", "kind": "derived"} if unit else value
    file = folder / "mine.yaml"
    YAML().dump(content, file)
    return "\n".join(catalog.problems(file, KINDS[root]))


@pytest.mark.parametrize(("question", "path", "written", "inside"), GOOD)
def test_what_people_write_is_read(question, path, written, inside):
    answer = perfmodel.predict(question[0], on=question[1], set=[f"{path}={written}"])
    assert get(answer.scenario, path) == pytest.approx(inside, rel=1e-12)
    swept = perfmodel.sweep(question[0], on=question[1], axes={path: written})
    assert swept.axes[0].values == pytest.approx((inside,), rel=1e-12)


@pytest.mark.parametrize(
    ("path", "number", "likely"),
    [
        ("economics.life", "5", "5 year"),
        ("system.memory.hbm.bandwidth", "3.35", "3.35 TB/s"),
        ("system.rates.bf16", "989", "989 TFLOP/s"),
        ("system.memory.hbm.capacity", "141", "141 GB"),
        ("system.price.system", "300k", "300k USD"),
    ],
)
def test_a_number_without_its_unit_is_refused_with_the_likely_one(path, number, likely):
    assert at_set(H100, path, number) == f"--set {path}: {number} has no unit: {likely}?"


def test_an_axis_over_a_bandwidth_needs_units_too():
    assert "3 has no unit: 3 TB/s?" in at_axis(H100, "system.memory.hbm.bandwidth", "3:8:3")


def test_combinations_of_axes_are_checked_against_each_other():
    axes = {"model.layers.0.attention.heads": [32.0, 30.0], "model.layers.0.attention.kv_heads": [8.0, 6.0]}
    with pytest.raises(perfmodel.UserError, match="do not divide"):
        perfmodel.sweep(*H100[:1], on=H100[1], axes=axes)
    axes = {"model.layers.0.attention.heads": [32.0, 40.0, 36.0], "model.layers.0.attention.kv_heads": [4.0]}
    with pytest.raises(perfmodel.UserError, match="does not divide"):
        perfmodel.sweep("llama-3.1-8b", on="dgx-h100:tp=8", axes=axes)


def test_every_bundled_number_lies_in_its_own_range():
    for kind in ("system", "model", "traffic"):
        for name, _, _ in catalog.entries(kind):
            spec = catalog.load_system(name)[0] if kind == "system" else getattr(catalog, f"load_{kind}")(name)
            wrong = {path: value for path, _, value in quantities(spec) if not range_at(spec, path).holds(value)}
            assert not wrong, name


@cache
def offered():
    return offer(ask_each([H100[0]], [H100[1], LPU[1]], Options()))


def test_a_cell_of_a_workbook_takes_what_the_type_takes(tmp_path):
    path = tmp_path / "book.xlsx"
    workbook.write(offered(), path, asked=0, contexts=(4096.0,), ratios=(4.0,), spare=0)
    sheet = openpyxl.load_workbook(path)["Inputs"]
    rules = {cell: rule for rule in sheet.data_validations.dataValidation for cell in str(rule.sqref).split()}
    seen = 0
    for row in range(14, sheet.max_row + 1):
        where, rule = sheet.cell(row, 1).value, rules.get(f"C{row}")
        if where is None:
            continue
        pair = next(pair for pair in offered().pairs if where in pair.inputs)
        allowed = range_at(pair.scenario, where)
        assert rule is not None, where
        unit = sheet.cell(row, 5).value
        assert rule.error == f"Must be {allowed.words()}." + ("" if unit == "1" else f" Type it in {unit}.")
        assert unit_factor(unit)[0] == allowed.unit
        seen += 1
    assert seen > 50


@pytest.mark.program
def test_a_slider_of_the_page_takes_what_the_type_takes():
    script = whatif.scripts(offered(), Options(), ["chat"])
    pair = offered().pairs[0]
    tried = [
        (path, value)
        for path in pair.inputs
        for value in (-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 1e4, 1e30)
        if f'"{path}"' in script or path in script
    ]
    wrong = run_node(
        f"{script}\nreport({json.dumps(tried)}.map(([path, value]) =>"
        " DATA.rules[path] === undefined ? null : engine.wrong(path, value)))"
    )
    for (path, value), said in zip(tried, wrong, strict=True):
        if said is not None:
            allowed = range_at(pair.scenario, path)
            assert said == ("" if allowed.holds(value) else f"must be {allowed.words()}"), (path, value)


def test_numbers_shown_are_read_again():
    """What `specs show` and a refusal print is what a door takes."""

    for path, unit, value in quantities(asked(*H100)):
        if value == value and unit != "1":
            assert parse(show(value, unit, 17), unit) == pytest.approx(value, rel=1e-12), path
