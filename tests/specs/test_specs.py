"""The bundled specs: complete, sourced, without drift."""

import functools
import re
from dataclasses import fields

import pytest

from perfmodel.specs import catalog
from perfmodel.specs.kinds import kind_of

FILES = [(kind, name, path) for kind in catalog.FOLDERS for name, _, path in catalog.entries(kind)]
SYSTEMS = sorted(name for kind, name, _ in FILES if kind == "system")


@functools.cache
def loaded(name):
    return catalog.load_system(name)[0]


CALIBRATIONS = sorted((catalog.bundled() / catalog.CALIBRATION).glob("*.yaml"))
KIND_OF_CHIP = {system.chip: system.kind for system in (loaded(name) for name in SYSTEMS)}
ENTRIES = [
    pytest.param(name, where, origin, id=f"{name}-{where}")
    for name in SYSTEMS
    for where, origin in loaded(name).provenance.items()
    if origin.kind == "estimate"
]


def machine_kind(path):
    """Return the machine kind of a calibration file, which is named by chip and engine or is a kind's default."""
    chip, _, engine = path.stem.rpartition("-")
    return engine if path.stem.startswith("default-") else KIND_OF_CHIP[chip]


def at(part, path):
    for key in path.split("."):
        part = part[key] if isinstance(part, dict) else part[int(key)] if key.isdigit() else getattr(part, key)
    return part


@pytest.mark.parametrize(
    ("kind", "path"), [pytest.param(kind, path, id=f"{kind}-{name}") for kind, name, path in FILES]
)
def test_a_bundled_file_has_no_problems(kind, path):
    assert catalog.problems(path, catalog.FOLDERS[kind][1]) == []


@pytest.mark.parametrize("path", CALIBRATIONS, ids=lambda path: path.stem)
def test_a_calibration_file_has_no_problems(path):
    assert catalog.problems(path, kind_of(machine_kind(path)).efficiency) == []


@pytest.mark.parametrize(("name", "entry"), sorted(catalog.load_sources().items()))
def test_a_source_has_a_title_a_date_and_a_place(name, entry):
    assert entry.get("title"), name
    assert entry.get("date"), name
    own = name.startswith(("project-", "plan-"))
    assert own or entry.get("url") or entry.get("doi") or entry.get("note"), name


@pytest.mark.parametrize("path", sorted(catalog.generated()), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_generated_file_has_not_drifted(path):
    assert path.read_text(encoding="utf-8") == catalog.generated()[path], "run python -m perfmodel.specs.catalog"


@pytest.mark.parametrize("kind", catalog.FOLDERS)
def test_names_and_aliases_are_unique(kind):
    owner = {}
    for name, aliases, _ in catalog.entries(kind):
        for known in {name.casefold(), *(alias.casefold() for alias in aliases)}:
            assert owner.setdefault(known, name) == name


@pytest.mark.parametrize("kind", catalog.FOLDERS)
def test_every_name_and_alias_finds_its_file(kind):
    for name, aliases, path in catalog.entries(kind):
        for known in (name, name.upper(), *aliases):
            assert catalog.find(kind, known) == path


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_is_laid_out_and_computes_what_it_says(name):
    system = loaded(name)
    assert system.default_plan in {plan.name for plan in system.plans}
    assert set(system.computes_as.values()) <= set(system.rates)
    tier = system.memory.sram if system.kind == "sram_pipeline" else system.memory.hbm
    assert tier.capacity > 0
    assert tier.bandwidth > 0
    # A label of GB may mean GiB; nothing else makes a driver show more than the label.
    if tier.visible == tier.visible:
        assert 0.95 < tier.visible <= 2**30 / 1e9 + 1e-8


@pytest.mark.parametrize(("name", "where", "origin"), ENTRIES)
def test_an_estimate_lies_within_its_range(name, where, origin):
    value = at(loaded(name), where)
    assert origin.low <= value <= origin.high


@pytest.mark.parametrize(
    ("name", "where", "origin"), [entry for entry in ENTRIES if entry.values[1].startswith("price.")]
)
def test_a_price_has_a_date_and_a_source(name, where, origin):
    """What all prices of one basis have in common is ``economics.price_level``, so the range is that of the basis."""
    assert re.fullmatch(r"20\d\d-\d\d", origin.date)
    assert origin.source


def test_a_calibrated_number_is_fitted_or_an_estimate():
    for name in SYSTEMS:
        system = loaded(name)
        for where, origin in system.provenance.items():
            # A default curve was measured over no links.
            if where.startswith("efficiency.") and not where.startswith("efficiency.link_"):
                assert origin.kind in ("measured", "paper", "derived", "estimate"), (name, where)
                assert origin.source, (name, where)


def test_extends_changes_a_few_lines_and_says_which_file_wrote_each():
    paper, sheet = (loaded(name) for name in ("dgx-h100-paper", "dgx-h100"))
    written = {
        where
        for where, origin in paper.provenance.items()
        if origin.file == "dgx-h100-paper.yaml" and not where.startswith("efficiency.")
    }
    assert written == {"rates.bf16", "memory.hbm.bandwidth"}
    for where, origin in paper.provenance.items():
        if where not in written and where in sheet.provenance and not where.startswith("efficiency."):
            assert origin == sheet.provenance[where]
            value, other = at(paper, where), at(sheet, where)
            assert value == other or value != value
    assert {entry.name for entry in fields(paper) if getattr(paper, entry.name) != getattr(sheet, entry.name)} <= {
        "name",
        "title",
        "aliases",
        "rates",
        "memory",
        "link",  # holds a NaN, which equals nothing
        "provenance",
    }
