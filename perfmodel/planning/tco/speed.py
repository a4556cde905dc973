"""Every machine at one speed: its knobs set to what costs least a token under a bound on TPOT."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import UserError
from perfmodel.machines.base import machine_of
from perfmodel.prediction import evaluate
from perfmodel.question import Options, resolve, split_system
from perfmodel.serving.fit import fit
from perfmodel.specs import catalog
from perfmodel.specs.paths import put
from perfmodel.specs.types import Scenario
from perfmodel.specs.units import show

Array = NDArray[np.float64]

#: Tokens a beat, and drafted tokens, among which an operator chooses.
BUDGETS = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
DEPTHS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
BUDGET = "system.efficiency.token_budget"
#: Requests at once beyond which nothing is looked for, those tried at a time, and times that the grid is refined.
MOST, POINTS, ROUNDS = 2.0**15, 48, 3
#: A setting that costs so little more than the cheapest is as good: the one with more requests at once is taken.
ALIKE = 1.002
#: What keeps a machine from the bound.
AT_BOUND, MEMORY, ALONE, SATURATED = "bound", "memory", "alone", "saturated"


@dataclass(frozen=True)
class Point:
    """One setting of a machine: its speed and what it costs.

    Attributes
    ----------
    tpot : float
        TPOT [s].
    usd : float
        Blended price of a million tokens [USD].
    users : float
        Requests at once [1].
    plan : str
        Its layout.
    """

    tpot: float
    usd: float
    users: float
    plan: str


@dataclass(frozen=True)
class Setting:
    """A machine at its cheapest setting under a bound.

    Attributes
    ----------
    scenario : Scenario
    limit : str
        What it is at: ``bound``, ``memory``, ``saturated``, or ``alone`` where one request already misses the bound.
    curve : tuple of Point
        Cheapest settings by speed, the fastest first.
    """

    scenario: Scenario
    limit: str
    curve: tuple[Point, ...]


@dataclass(frozen=True)
class _Grid:
    """Settings of one layout: users by budget, with speed, price and tokens a second and chip."""

    scenario: Scenario
    budgets: Array
    users: Array
    tpot: Array
    usd: Array
    rate: Array
    most: float

    @property
    def cost(self) -> Array:
        """What is made least: the price, or where there is none the inverse of tokens a second and chip."""
        return np.where(np.isfinite(self.usd), self.usd, np.inf) if np.isfinite(self.usd).any() else 1 / self.rate


def at_bound(
    model: Any,
    on: str,
    options: Options,
    changes: Sequence[str],
    bound: float,
    prepared: Callable[[Scenario], Scenario],
) -> Setting:
    """Return a machine at its cheapest setting that keeps a bound on TPOT.

    Parameters
    ----------
    model : str or Model
    on : str
        System, with what is fixed of its plan after a colon.
    options : Options
        What they fix stays; layout, token budget and drafting depth are chosen where they are open.
    changes : sequence of str
    bound : float
        On TPOT [s].
    prepared : callable
        What is done to each scenario before it is asked about.

    Returns
    -------
    Setting

    Raises
    ------
    UserError
        Where the default layout is refused.
    """
    grids = [_searched(prepared(scenario), changes, bound) for scenario in _layouts(model, on, options, changes)]
    fitting = [grid for grid in grids if grid.most >= 1] or grids[:1]
    best = min(fitting, key=lambda grid: _least(grid, bound)[0])
    cost, row, column = _least(best, bound)
    curve = _curve(fitting)
    if not np.isfinite(cost):
        # No setting keeps the bound: the fastest one.
        fastest = min(fitting, key=lambda grid: float(np.nanmin(_or_inf(grid.tpot))))
        row, column = divmod(int(np.argmin(_or_inf(fastest.tpot))), fastest.tpot.shape[1])
        return Setting(_set(fastest, row, column, "its fastest setting"), ALONE, curve)
    users, tpot = float(best.users[row, column]), float(best.tpot[row, column])
    if best.most < users + 1:
        limit = MEMORY
    elif tpot >= 0.99 * bound or _next_misses(best, row, users, bound):
        limit = AT_BOUND
    else:
        limit = SATURATED
    return Setting(_set(best, row, column, "its cheapest setting"), limit, curve)


def _or_inf(values: Array) -> Array:
    return np.where(np.isfinite(values), values, np.inf)


def _layouts(model: Any, on: str, options: Options, changes: Sequence[str]) -> Iterator[Scenario]:
    """Give the scenario of each layout and drafting depth that is open, one request at once; the default one first."""
    name, here = split_system(on, options)
    depths: Sequence[float | None] = (None,)
    if here.draft is not None and here.k is None and here.ar is None and not (here.accept or here.accept_logged):
        depths = DEPTHS
    fixed = any(getattr(here, key) is not None for key in ("plan", "tp", "pp", "ep", "dp", "attention_dp"))
    fixed = fixed or any("deployment." in change for change in changes)
    single = replace(options, concurrency=1.0)
    first = resolve(model, on, single if depths[0] is None else replace(single, k=depths[0]), changes)
    yield first
    plans: list[str | None] = [None]
    if not fixed:
        machine = machine_of(first.system)
        # Stages on machines with kernels are measured by nobody, and refused by ``size`` unless asked for.
        plans += [plan.name for plan in catalog.load_bare_system(name).plans if plan.pp == "1" or machine.prefill_rides]
    for plan in plans:
        for depth in depths:
            if plan is None and depth == depths[0]:
                continue
            try:
                yield resolve(model, on, replace(single, plan=plan, k=here.k if depth is None else depth), changes)
            except UserError:
                continue


def _searched(scenario: Scenario, changes: Sequence[str], bound: float) -> _Grid:
    """Return the settings of one layout, the finest where the bound is met."""
    machine = machine_of(scenario.system)
    open_budget = machine.token_budget(scenario.system) is not None
    open_budget = open_budget and not any("token_budget" in change for change in changes)
    budgets = np.array(BUDGETS if open_budget else (np.nan,))
    most = min(MOST, float(np.floor(float(fit(scenario).cap) * float(scenario.deployment.groups) + 1e-9)))
    users = np.unique(np.floor(np.geomspace(1.0, max(1.0, most), POINTS)))
    grid = _evaluated(scenario, budgets, np.broadcast_to(users, (len(budgets), len(users))), most)
    for _ in range(ROUNDS):
        grid = _refined(grid, bound)
    return grid


def _evaluated(scenario: Scenario, budgets: Array, users: Array, most: float) -> _Grid:
    asked = put(scenario, "traffic.concurrency", users)
    if np.isfinite(budgets).all():
        asked = put(asked, BUDGET, np.broadcast_to(budgets[:, None], users.shape))
    found = evaluate(asked, ("tpot_s", "usd_per_mtok_blended", "output_tokens_per_s", "input_tokens_per_s"))
    metrics, chips = found.metrics, float(found.chips)
    rate = (metrics["output_tokens_per_s"] + metrics["input_tokens_per_s"]) / chips
    shaped = [np.array(np.broadcast_to(part, users.shape), float) for part in (metrics["tpot_s"], rate)]
    usd = np.array(np.broadcast_to(metrics["usd_per_mtok_blended"], users.shape), float)
    return _Grid(scenario, budgets, users, shaped[0], usd, shaped[1], most)


def _refined(grid: _Grid, bound: float) -> _Grid:
    """Return a grid with more users between the last that keep the bound and the next, budget by budget."""
    rows = []
    for users, tpot in zip(grid.users, grid.tpot, strict=True):
        kept = np.flatnonzero(tpot <= bound)
        at = int(kept[-1]) if len(kept) else 0
        low, high = users[at], users[min(at + 1, len(users) - 1)]
        rows.append(np.floor(np.linspace(low, high, POINTS)))
    more = _evaluated(grid.scenario, grid.budgets, np.array(rows), grid.most)
    users = np.concatenate((grid.users, more.users), axis=1)
    order = np.argsort(users, axis=1, kind="stable")
    tpot, usd, rate = (
        np.take_along_axis(np.concatenate(pair, axis=1), order, axis=1)
        for pair in ((grid.tpot, more.tpot), (grid.usd, more.usd), (grid.rate, more.rate))
    )
    return replace(grid, users=np.take_along_axis(users, order, axis=1), tpot=tpot, usd=usd, rate=rate)


def _least(grid: _Grid, bound: float) -> tuple[float, int, int]:
    """Return the least cost that keeps a bound, and where: of settings alike, the one with the most requests."""
    kept = np.where(grid.tpot <= bound, grid.cost, np.inf)
    least = float(np.min(_or_inf(kept)))
    if not np.isfinite(least):
        return np.inf, 0, 0
    alike = np.where(kept <= least * ALIKE, grid.users, -1.0)
    row, column = np.unravel_index(int(np.argmax(alike)), alike.shape)
    return least, int(row), int(column)


def _next_misses(grid: _Grid, row: int, users: float, bound: float) -> bool:
    """Whether one request more would miss the bound."""
    after = _evaluated(grid.scenario, grid.budgets[row : row + 1], np.array([[users + 1.0]]), grid.most)
    return not float(after.tpot[0, 0]) <= bound


def _set(grid: _Grid, row: int, column: int, words: str) -> Scenario:
    """Return the scenario of one setting, and what was chosen of it."""
    scenario, users, budget = grid.scenario, float(grid.users[row, column]), float(grid.budgets[row])
    plan = scenario.deployment
    layout = f"TP{plan.tp:g}" + (f" PP{plan.pp:g}" if float(plan.pp) > 1 else "")
    said = [layout, f"{users:,.0f} requests at once"]
    chosen: Scenario = put(scenario, "traffic.concurrency", users)
    if budget == budget:
        chosen = put(chosen, BUDGET, budget)
        said.append(f"{budget:g} tokens a beat")
    if scenario.speculation is not None:
        said.append(f"{float(scenario.speculation.k):g} drafted")
    assumed = [word for word in scenario.assumed if not word.startswith("concurrency")]
    return replace(chosen, assumed=(*assumed, f"{scenario.system.name}: {', '.join(said)}, {words}"))


def _curve(grids: Sequence[_Grid]) -> tuple[Point, ...]:
    """Return the cheapest settings by speed over all layouts, each cheaper than every faster one."""
    points = []
    for grid in grids:
        plan = f"TP{grid.scenario.deployment.tp:g}"
        flat = (grid.tpot.ravel(), grid.usd.ravel(), grid.users.ravel())
        points += [
            Point(float(t), float(c), float(n), plan) for t, c, n in zip(*flat, strict=True) if t == t and c == c
        ]
    return tuple(frontier(points))


def frontier(points: Sequence[Point]) -> list[Point]:
    """Return the points that no faster one undercuts, the fastest first, about eight a factor of ten in speed.

    Parameters
    ----------
    points : sequence of Point

    Returns
    -------
    list of Point
    """
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (point.tpot, point.usd)):
        if not kept or point.usd < kept[-1].usd:
            kept.append(point)
    thin: list[Point] = []
    for point in kept:
        if not thin or point.tpot > thin[-1].tpot * 1.15 or point is kept[-1]:
            thin.append(point)
    return thin


def limit_words(setting: Setting, bound: float) -> str:
    """Return what keeps a machine from the bound; empty where it is at it.

    Parameters
    ----------
    setting : Setting
    bound : float
        On TPOT [s].

    Returns
    -------
    str
    """
    users = float(setting.scenario.traffic.concurrency)
    return {
        AT_BOUND: "",
        MEMORY: f"at its memory: {users:,.0f} requests are all that fit",
        SATURATED: f"no cheaper beyond {users:,.0f} requests at once: its tokens a second grow no more",
        ALONE: f"misses the TPOT of {show(bound, 's', 3)}",
    }[setting.limit]
