"""Bills of materials: what a chip and a node cost to make, each line with its range and what is not published."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.equations import yield_cost
from perfmodel.errors import UserError
from perfmodel.numerics import NAN
from perfmodel.specs import catalog
from perfmodel.specs.types import Materials, Provenance, System

#: Years in which memory is priced unless told otherwise.
HBM_YEAR = DDR_YEAR = "2025"


@dataclass(frozen=True)
class Line:
    """One line of a bill [USD]: ``computed`` from its causes, ``copied`` from a source, or ``not published``."""

    name: str
    kind: str
    low: float
    value: float
    high: float
    note: str = ""


@dataclass(frozen=True)
class Bill:
    """The bill of one chip and of a node around its chips.

    Attributes
    ----------
    system : str
    chip, node : tuple of Line
        The node's first line is all its chips.
    price : float
        Of the node, NaN where nobody has published or estimated one.
    """

    system: str
    chip: tuple[Line, ...]
    node: tuple[Line, ...]
    price: float

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the lines that nobody has published, and that no total holds."""
        return tuple(line.name for line in (*self.chip, *self.node) if line.kind == "not published")

    @property
    def margin(self) -> float:
        """Share of the price that the known materials leave; an upper bound where lines are missing."""
        return 1 - total(self.node, "materials of the node").value / self.price

    def price_at(self, margin: float) -> float:
        """Return the price at which the known materials would leave such a margin [USD]."""
        return float(yield_cost.price_at_margin(cost=total(self.node, "materials of the node").value, margin=margin))


def total(lines: Sequence[Line], name: str, count: float = 1.0) -> Line:
    """Return the sum of the lines that are known, so many times; its note names those that are not."""
    known = [line for line in lines if line.kind != "not published"]
    unknown = [line.name for line in lines if line.kind == "not published"]
    within = [line.note for line in known if line.note.startswith("without ")]
    note = f"without {', '.join(unknown)}: not published" if unknown else "; ".join(within)
    if not known:
        return Line(name, "not published", NAN, NAN, NAN, note)
    low, value, high = (count * sum(getattr(line, end) for line in known) for end in ("low", "value", "high"))
    return Line(name, "computed", low, value, high, note)


class _Shelf:
    """Prices of materials: a number at its low, its value or its high."""

    def __init__(self, materials: Materials, end: str) -> None:
        self.materials, self.end = materials, end

    def __call__(self, *path: str) -> float:
        value: Any = self.materials
        for key in path:
            if isinstance(value, Mapping) and key not in value:
                raise UserError(f"hardware_specs/materials.yaml: {path[0]}: no '{key}', only {', '.join(value)}")
            value = value[key] if isinstance(value, Mapping) else getattr(value, key)
        return self.bound(value, self.materials.provenance[".".join(path)])

    def bound(self, value: Any, origin: Provenance) -> float:
        """Return a number's end, or the number where it is no estimate."""
        end = NAN if self.end == "value" else getattr(origin, self.end)
        return float(value) if end != end else float(end)


def bill(
    system: System, materials: Materials | None = None, hbm_year: str = HBM_YEAR, ddr_year: str = DDR_YEAR
) -> Bill:
    """Return the bill of materials of a system.

    Parameters
    ----------
    system : System
    materials : Materials, optional
        The bundled or the user's own where not given.
    hbm_year, ddr_year : str
        Years whose price of memory holds.

    Returns
    -------
    Bill
        Lows have all cheap ends at once, highs all dear ones.
    """
    stock = materials or catalog.load_materials()
    shelves = {end: _Shelf(stock, end) for end in ("low", "value", "high")}
    # Cheap are the low price and the high yield: what lowers a cost stands at its other end.
    other = {"low": shelves["high"], "value": shelves["value"], "high": shelves["low"]}

    def line(name: str, kind: str, amount: Callable[[_Shelf, _Shelf], float], note: str = "") -> Line:
        ends = [amount(shelves[end], other[end]) for end in ("low", "value", "high")]
        if ends[1] != ends[1]:
            return Line(name, "not published", NAN, NAN, NAN, note)
        return Line(name, kind, min(ends), ends[1], max(ends), note)

    chip = _chip_lines(system, line, hbm_year)
    chips = total(chip, "chips", float(system.price.chips))
    parts = stock.node.get(system.node.parts, {})
    rest = [line(name, "copied", _part(system.node.parts, name)) for name in parts]
    if not parts:
        rest = [Line("node around the chips", "not published", NAN, NAN, NAN)]
    ddr = line(
        "host memory",
        "computed",
        lambda shelf, _: yield_cost.memory_cost(capacity=system.node.ddr, usd_per_byte=shelf("ddr", ddr_year)),
        f"DDR at the price of {ddr_year}",
    )
    return Bill(system.name, chip, (chips, *rest, ddr), float(system.price.system))


def _part(node: str, name: str) -> Callable[[_Shelf, _Shelf], float]:
    return lambda shelf, _: shelf("node", node, name)


def _perfect(shelf: _Shelf, wafer: str, area: Any) -> Any:
    """Return the share of dies without a defect, by the model that the materials name."""
    defects = shelf("defects", wafer)
    match shelf.materials.yield_model:
        case "poisson":
            return yield_cost.poisson_yield(defects=defects, area=area)
        case "murphy":
            return yield_cost.murphy_yield(defects=defects, area=area)
        case "seeds":
            return yield_cost.seeds_yield(defects=defects, area=area)
        case _:
            return yield_cost.negative_binomial_yield(defects=defects, area=area, cluster=shelf("cluster"))


def _chip_lines(system: System, line: Callable[..., Line], hbm_year: str) -> tuple[Line, ...]:
    die = system.die
    hbm = system.memory.hbm
    capacity = 0.0 if hbm is None else hbm.capacity
    if not die.wafer or not die.package:
        return (Line("chip", "not published", NAN, NAN, NAN, f"no price of a wafer or package of {die.process}"),)
    area, stacks = die.area, die.stacks

    def logic(shelf: _Shelf, other: _Shelf) -> float:
        perfect = _perfect(shelf, die.wafer, area)
        dies = yield_cost.dies_per_wafer(
            area=area, diameter=shelf("wafer_diameter"), scribe=shelf("scribe"), edge=shelf("edge")
        )
        if not dies > 0:
            return NAN
        sold = yield_cost.harvested_yield(perfect=perfect, harvest=other("harvest"))
        cost = yield_cost.die_cost(wafer=shelf("wafer", die.wafer), dies=dies, sold=sold)
        return float(cost * die.dies_per_package)

    def memory(shelf: _Shelf, _: _Shelf) -> float:
        return float(yield_cost.memory_cost(capacity=capacity, usd_per_byte=shelf("hbm", hbm_year)))

    def package(shelf: _Shelf, _: _Shelf) -> float:
        return shelf("package", die.package)

    def loss(shelf: _Shelf, other: _Shelf) -> float:
        content = logic(shelf, other) + memory(shelf, other) + package(shelf, other)
        good = yield_cost.package_yield(bond=other("bond", die.package), parts=die.dies_per_package + stacks)
        return float(yield_cost.package_loss(content=content, good=good))

    lines = [line("logic", "computed", logic, f"{die.process}, by area, defects and harvest")]
    if hbm is not None:
        lines.append(line("memory", "computed", memory, f"HBM at the price of {hbm_year}"))
    lines += [
        line("package", "copied", package, die.package),
        line("package loss", "computed", loss, "dies, memory and package lost with bad bonds"),
        line("test", "copied", lambda shelf, _: shelf("test", die.package), "test and assembly"),
    ]
    return tuple(lines)


@dataclass(frozen=True)
class Compared:
    """A published line beside the same line of a bill."""

    chip: str
    line: str
    published: float
    computed: float
    copied: bool
    source: str

    @property
    def error(self) -> float:
        """Computed over published, less 1."""
        return self.computed / self.published - 1


def against_published() -> list[Compared]:
    """Return the published lines of chips beside ours; memory at the price that another chip's bill gives.

    The price of 2025 comes from B200 and that of 2024 from H100, so each chip takes the other's.
    """
    year = {"B200": "2024", "H100": "2025"}
    compared = []
    with (catalog.bundled() / "data" / "bom_published.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            made = bill(catalog.load_bare_system(row["system"]), hbm_year=year[row["chip"]])
            lines = {line.name: line.value for line in made.chip} | {"chip": total(made.chip, "chip").value}
            compared.append(
                Compared(
                    row["chip"],
                    row["line"],
                    float(row["usd"]),
                    lines[row["line"]],
                    row["copied"] == "yes",
                    row["source"],
                )
            )
    return compared
