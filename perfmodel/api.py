"""The Python interface: the same words as the command line."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from perfmodel.errors import UserError
from perfmodel.prediction import Prediction, run
from perfmodel.question import Options, resolve, split_changes
from perfmodel.specs import catalog
from perfmodel.specs.types import Model, System, Traffic
from perfmodel.specs.units import INSIDE

if TYPE_CHECKING:
    from perfmodel.outputs.explain import Explanation
    from perfmodel.outputs.fit import FitAnswer
    from perfmodel.outputs.folder import Stored
    from perfmodel.serving.objectives import Objectives
    from perfmodel.studies.cost.ownership import Owning
    from perfmodel.studies.simulate import Comparison as Simulation
    from perfmodel.studies.size import Sized, Sizing
    from perfmodel.studies.solve import Solution
    from perfmodel.studies.sweep import Sweep
    from perfmodel.studies.validate import Validation

Changes = Mapping[str, Any] | Sequence[str]


def _changes(set: Changes) -> list[str]:
    """Return changes as the command line has them; numbers are in the inside unit."""
    if not isinstance(set, Mapping):
        return list(set)
    return [f"{path}={_written(value)}" for path, value in set.items()]


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    inside = isinstance(value, int | float) and math.isfinite(value)
    return f"{float(value)!r} {INSIDE}" if inside else str(value)


class Answer(Prediction):
    """A prediction that shows itself: in a terminal, in a notebook, as a frame, as a derivation."""

    def to_frame(self) -> Any:
        """Return a one-row pandas frame with the flat columns of ``--csv``."""
        import pandas as pd

        return pd.DataFrame([self.row()])

    def explain(self, metric: str = "tpot_s", depth: int = 12) -> str:
        """Return how a metric came about, line by line.

        Parameters
        ----------
        metric : str
            A key of the JSON or a column of ``--csv``, its unit suffix optional.
        depth : int
            How many equations deep.

        Returns
        -------
        str
        """
        from perfmodel.outputs.explain import explain

        return explain(self.scenario, metric, depth).text()

    def __repr__(self) -> str:
        from perfmodel.outputs.tables import comparison_text

        return comparison_text([self])

    def _repr_html_(self) -> str:
        from perfmodel.outputs.tables import comparison_html

        return comparison_html([self])


def _shown(prediction: Prediction) -> Answer:
    return Answer(**{entry.name: getattr(prediction, entry.name) for entry in fields(prediction)})


def predict(model: str | Model, *, on: str, set: Changes = (), **options: Any) -> Answer:
    """Answer one question.

    Parameters
    ----------
    model : str or Model
        Name, alias, Hugging Face id, path, or a loaded architecture.
    on : str
        System, with ``:key=value,...`` for the plan.
    set : mapping or sequence of str
        Changes by path: ``{"system.memory.hbm.bandwidth": "+20%"}``.
    **options
        ``plan tp pp ep dp engine precision kv_precision traffic prompt output concurrency``.

    Returns
    -------
    Answer
        Times in s, rates in 1/s, sizes in B.

    Raises
    ------
    UserError
        Where the question cannot be answered as asked; one line that names the fix.

    Examples
    --------
    >>> answer = predict("llama-3.1-8b", on="dgx-h100", tp=1, prompt=1024, output=1024)
    >>> answer.fits
    True
    """
    return _shown(run(resolve(model, on, Options(**options), _changes(set))))


@dataclass(frozen=True)
class Comparison:
    """The same question, side by side.

    Attributes
    ----------
    answers : tuple of Answer
    """

    answers: tuple[Answer, ...]

    def to_frame(self) -> Any:
        """Return a pandas frame, one row an answer."""
        import pandas as pd

        return pd.DataFrame([answer.row() for answer in self.answers])

    def to_dict(self) -> dict[str, Any]:
        """Return the documented JSON object."""
        from perfmodel.outputs.tables import shared

        return {
            "answers": [answer.to_dict() for answer in self.answers],
            "assumed": shared([answer.assumed for answer in self.answers]),
            "warnings": shared([answer.warnings for answer in self.answers]),
        }

    def explain(self, metric: str = "tpot_s") -> str:
        """Return how a metric came about for each answer.

        Parameters
        ----------
        metric : str
            A key of the JSON or a column of ``--csv``, its unit suffix optional.

        Returns
        -------
        str
        """
        return "\n".join(f"{answer.scenario.system.name}\n{answer.explain(metric)}" for answer in self.answers)

    def __repr__(self) -> str:
        from perfmodel.outputs.tables import comparison_text

        return comparison_text(self.answers)

    def _repr_html_(self) -> str:
        from perfmodel.outputs.tables import comparison_html

        return comparison_html(self.answers)


def compare(model: str | Model, *, on: Sequence[str], set: Changes = (), **options: Any) -> Comparison:
    """Answer the same question on several systems.

    Parameters
    ----------
    model : str or Model
        As in :func:`predict`.
    on : sequence of str
        Systems, each with ``:key=value,...`` if wanted.
    set : mapping or sequence of str
        Changes by path; ``SYSTEM:PATH`` or ``#2:PATH`` changes one of them only.
    **options
        As in :func:`predict`.

    Returns
    -------
    Comparison
    """
    return compare_options(model, list(on), Options(**options), _changes(set))


def compare_options(model: str | Model, on: Sequence[str], options: Options, changes: Sequence[str]) -> Comparison:
    """Answer the same question on several systems; the command line's way in."""
    each = split_changes(on, changes)
    return Comparison(
        tuple(_shown(run(resolve(model, system, options, mine))) for system, mine in zip(on, each, strict=True))
    )


@overload
def sweep(
    model: str, *, on: str, axes: Mapping[str, Any], set: Changes = (), out: None = None, **options: Any
) -> Sweep: ...


@overload
def sweep(
    model: str,
    *,
    on: str,
    axes: Mapping[str, Any],
    set: Changes = (),
    out: str | Path,
    keep: str | None = None,
    executor: str = "local",
    scheduler: str | None = None,
    workers: int | None = None,
    **options: Any,
) -> Stored: ...


def sweep(
    model: str,
    *,
    on: str,
    axes: Mapping[str, Any],
    set: Changes = (),
    out: str | Path | None = None,
    keep: str | None = None,
    executor: str = "local",
    scheduler: str | None = None,
    workers: int | None = None,
    **options: Any,
) -> Sweep | Stored:
    """Vary inputs of a question over the product of axes.

    Parameters
    ----------
    model, on, set, **options
        As in :func:`predict`.
    axes : mapping of str to str or sequence
        Values by path: ``"A:B:N"``, ``"A:B:N:log"``, ``"a,b,c"``, or a sequence in the inside unit.
    out : str or path, optional
        A folder for any number of points, written in partitions; the same call goes on where it was stopped.
    keep : str, optional
        What to keep where not all: ``"pareto:METRIC,METRIC"``, ``"best:METRIC"`` or ``"quantiles:METRIC"``, each with
        ``:by=AXIS,...`` if wanted; with ``out``.
    executor : {'local', 'dask'}
        Where partitions are worked out; with ``out``.
    scheduler : str, optional
        Address of a Dask cluster that sees ``out``; without it one is started on this machine.
    workers : int, optional
        Processes of the cluster that is started; one a core where not given.

    Returns
    -------
    Sweep or Stored
        A Sweep has ``to_frame()``, ``best(metric)`` and ``plot(x, y, color)``; with ``out`` it is a Stored, with
        ``to_frame()`` and ``to_dask()``.

    Examples
    --------
    >>> result = sweep("llama-3.1-8b", on="dgx-h100", axes={"traffic.concurrency": [1, 8, 64]}, tp=1)
    >>> len(result)
    3
    """
    from perfmodel.studies import sweep as study

    space = study.space(model, on, axes, Options(**options), _changes(set))
    if out is None:
        if executor != "local" or any(given is not None for given in (keep, scheduler, workers)):
            raise UserError("keep, executor, scheduler and workers need out, a folder for the partitions")
        return space.evaluate()
    from perfmodel.outputs import folder

    question = f"perfmodel.sweep({model!r}, on={on!r}, axes={reprlib.repr(dict(axes))})"
    return folder.run(space, Path(out), question, keep=keep, executor=executor, scheduler=scheduler, workers=workers)


def fit(model: str | Model, *, on: str, context: float | None = None, set: Changes = (), **options: Any) -> FitAnswer:
    """Answer whether a model fits, with how many tokens of KV cache and how many requests of a length.

    Parameters
    ----------
    model, on, set, **options
        As in :func:`predict`.
    context : float, optional
        Tokens of a request; prompt and output of a traffic where one is given, else the most that the model takes.

    Returns
    -------
    FitAnswer
        Sizes in B, those of one chip; tokens and requests of all replicas.

    Examples
    --------
    >>> fit("llama-3.1-8b", on="dgx-h100", tp=1, context=8192).fits
    True
    """
    from perfmodel.outputs.fit import ask

    return ask(model, on, Options(**options), _changes(set), context)


def explain(
    metric: str, model: str | Model, *, on: str, depth: int = 4, set: Changes = (), **options: Any
) -> Explanation:
    """Explain how a number came about.

    Parameters
    ----------
    metric : str
        A key of the JSON or a column of ``--csv``, its unit suffix optional.
    model, on, set, **options
        As in :func:`predict`.
    depth : int
        How many equations deep.

    Returns
    -------
    Explanation
        With ``text()``, ``latex()``, ``to_dict()`` and ``elasticities``.
    """
    from perfmodel.outputs import explain as output

    return output.explain(resolve(model, on, Options(**options), _changes(set)), metric, depth)


def solve(
    metric: str, model: str | Model, *, on: str, for_: str, target: str | float, set: Changes = (), **options: Any
) -> Solution:
    """Find the value of an input at which a metric meets a target.

    Parameters
    ----------
    metric, model, on, set, **options
        As in :func:`explain`.
    for_ : str
        Path of the input.
    target : str or float
        With its unit, ``"20 ms"``, or in the inside unit.

    Returns
    -------
    Solution
        Its ``value`` is NaN and its ``reason`` says why where there is none.

    Examples
    --------
    >>> found = solve("tpot", "llama-3.1-8b", on="dgx-h100", tp=1, for_="memory.hbm.bandwidth", target="6 ms")
    >>> round(found.reached, 9)
    0.006
    """
    from perfmodel.studies import solve as study

    return study.solve(resolve(model, on, Options(**options), _changes(set)), metric, for_, target)


def export_csv(answers: Sequence[Prediction], path: str | Path, dictionary: str | Path | None = None) -> None:
    """Write answers as a tidy file, one row each.

    Parameters
    ----------
    answers : sequence of Prediction
    path : str or path
        Ends in ``.csv`` or ``.parquet``; written whole or not at all.
    dictionary : str or path, optional
        A second CSV with type, unit and meaning of every column.
    """
    from perfmodel.outputs import answers as output

    output.save(list(answers), Path(path))
    if dictionary is not None:
        output.save_dictionary(list(answers), Path(dictionary))


def tco(
    model: str | Model,
    *,
    on: Sequence[str],
    tpot: float | None = None,
    samples: int | None = None,
    set: Changes = (),
    **options: Any,
) -> Owning:
    """Answer what a million tokens cost on each system, what decides it, and how sure that is.

    Parameters
    ----------
    model, on, set, **options
        As in :func:`compare`; without ``concurrency`` each system runs as many requests as keep ``tpot``.
    tpot : float, optional
        Bound on TPOT [s]; 50 ms where neither it nor a concurrency is given.
    samples : int, optional
        Quasi-random samples over all that is not known.

    Returns
    -------
    Owning
        With ``systems``, ``sample`` and ``to_dict()``.
    """
    from perfmodel.studies.cost import ownership, uncertainty

    return ownership.own(
        model, list(on), Options(**options), _changes(set), tpot, uncertainty.SAMPLES if samples is None else samples
    )


def export_xlsx(
    path: str | Path, models: Sequence[str], *, on: Sequence[str], set: Changes = (), **options: Any
) -> None:
    """Write a planning workbook of live formulas.

    Parameters
    ----------
    path : str or path
        Ends in ``.xlsx``; written whole or not at all.
    models : sequence of str
        Names; each is asked about on each system.  All bundled systems and models of the same equations come with them.
    on, set, **options
        As in :func:`compare`.
    """
    from perfmodel.outputs import workbook
    from perfmodel.outputs.offers import bundled_offer

    workbook.check_path(Path(path))
    offer, asked = bundled_offer(models, on, Options(**options), _changes(set))
    workbook.write(offer, Path(path), asked=asked)


def whatif(path: str | Path, models: Sequence[str] = (), *, on: Sequence[str] = (), **options: Any) -> None:
    """Write the what-if page: one HTML file that works offline.

    Parameters
    ----------
    path : str or path
        Ends in ``.html``; written whole or not at all.
    models : sequence of str
        Names; all bundled ones if none.
    on : sequence of str
        Systems; a dozen if none.
    **options
        As in :func:`predict`.
    """
    from perfmodel.outputs import whatif as output

    output.write(models, on, Options(**options), Path(path))


def _objectives(limits: Mapping[str, float]) -> Objectives:
    """Read objectives by name: ``{"ttft_p99": 0.5}``."""
    from perfmodel.serving.objectives import STATISTICS, TIMES, Objectives

    known = {f"{time}_{what}": (time, what) for time in TIMES for what in STATISTICS}
    for name, limit in limits.items():
        if name not in known:
            raise UserError(f"objective '{name}': expected one of {', '.join(known)}")
        if not limit > 0:
            raise UserError(f"objective {name} {limit:g}: must be more than 0 s")
    return Objectives({known[name]: float(limit) for name, limit in limits.items()})


def size(
    model: str,
    *,
    on: Sequence[str],
    rate: float,
    objectives: Mapping[str, float] | None = None,
    least: str = "cost",
    availability: float | None = None,
    profile: Sequence[float] = (),
    set: Changes = (),
    **options: Any,
) -> Sizing:
    """Search how many systems, of which kind, in which plan, serve a rate within objectives.

    Parameters
    ----------
    model, on, set, **options
        As in :func:`compare`; what they fix is not searched over.
    rate : float
        Requests [1/s].
    objectives : mapping of str to float, optional
        Times not to exceed [s]: ``ttft``, ``tpot`` or ``latency`` with ``_p50``, ``_p90``, ``_p99`` or ``_mean``.
    least : str
        ``cost``, ``power`` or ``chips``.
    availability : float, optional
        Share of time that enough replicas must work; spares are added for it.
    profile : sequence of float
        Shares of the rate by period, as hours of a day; the answers say how many replicas each needs.

    Returns
    -------
    Sizing
        With ``answers``, ``rejected``, ``reason``, ``to_frame()`` and ``to_dict()``.

    Examples
    --------
    >>> found = size("llama-3.1-8b", on=["dgx-h100:tp=1"], rate=20, objectives={"tpot_p99": 0.05}, traffic="chat")
    >>> found.answers[0].load.queue.saturated
    False
    """
    from perfmodel.studies import size as study

    if least not in study.GOALS:
        raise UserError(f"least '{least}': expected one of {', '.join(study.GOALS)}")
    return study.size(
        model,
        list(on),
        rate,
        _objectives(objectives or {}),
        Options(**options),
        _changes(set),
        goal=least,
        available=availability,
        profile=profile,
    )


def load(
    model: str | Model,
    *,
    on: str,
    rate: float,
    objectives: Mapping[str, float] | None = None,
    set: Changes = (),
    **options: Any,
) -> Sized:
    """Put a rate of requests on a plan: percentiles, goodput, headroom and what breaks first.

    Parameters
    ----------
    model, on, set, **options
        As in :func:`predict`; ``dp`` are the replicas.
    rate : float
        Requests, all replicas together [1/s].
    objectives : mapping of str to float, optional
        As in :func:`size`.

    Returns
    -------
    Sized
        With ``load``, ``reason``, ``to_frame()`` and ``to_dict()``.

    Examples
    --------
    >>> answer = load("llama-3.1-8b", on="dgx-h100:tp=1", rate=5, objectives={"tpot_p99": 0.05})
    >>> answer.load.goodput > 4.9
    True
    """
    from perfmodel.studies import size as study

    return study.at_rate(resolve(model, on, Options(**options), _changes(set)), rate, _objectives(objectives or {}))


def simulate(
    model: str | Model,
    *,
    on: str,
    rate: float | None = None,
    trace: str | Path | None = None,
    sessions: int | None = None,
    requests: int = 5000,
    seed: int = 1,
    set: Changes = (),
    **options: Any,
) -> Simulation:
    """Run one replica token by token, beside the closed form of :func:`load`.

    Give one of ``rate``, ``trace`` and ``sessions``.

    Parameters
    ----------
    model, on, set, **options
        As in :func:`predict`; ``dp`` are the replicas, of which one is simulated.
    rate : float, optional
        Requests, all replicas together [1/s].
    trace : str or path, optional
        A CSV or JSON-lines file whose arrivals and lengths are replayed.
    sessions : int, optional
        Clients of a closed loop, all replicas together.
    requests : int
        Requests to draw, or to take of the trace.
    seed : int
        Of the random draws.

    Returns
    -------
    Comparison
        With ``simulated``, ``closed_form``, ``differences()`` and ``to_frame()``.

    Examples
    --------
    >>> ran = simulate("llama-3.1-8b", on="dgx-h100:tp=1", rate=5, requests=200)
    >>> ran.simulated["tpot_s"]["mean"] > 0
    True
    """
    from perfmodel.studies import simulate as study

    if sum(value is not None for value in (rate, trace, sessions)) != 1:
        raise UserError("give one of rate, trace and sessions")
    scenario = resolve(model, on, Options(**options), _changes(set))
    file = None if trace is None else str(trace)
    return study.ask(scenario, rate=rate, trace=file, sessions=sessions, count=requests, seed=seed)


def report(name: str | Path, out: str | Path | None = None) -> Path:
    """Build a report from its recipe: one page that opens offline, and PNG, SVG and CSV of each chart.

    Parameters
    ----------
    name : str or path
        Name of a bundled recipe, ``ship``, ``dataflow``, ``tco``, ``size``, or a recipe's file.
    out : str or path, optional
        Folder to write to; ``reports/build/NAME`` of the current one if none.

    Returns
    -------
    Path
        The page.
    """
    from perfmodel.outputs import report as output

    folder = Path(out) if out is not None else Path("reports", "build", Path(name).stem)
    return output.save(str(name), folder)[0]


def validate(data: str | Path | None = None) -> Validation:
    """Score a CSV of measurements, or the bundled ones.

    Parameters
    ----------
    data : str or path, optional
        A CSV with the columns model, hardware, metric, value and unit; see ``perfmodel validate``.

    Returns
    -------
    Validation
        With ``rows``, ``scores``, ``fitted`` and ``to_frame()``; calibrated and predicted rows are kept apart.
    """
    from perfmodel.studies import validate as study

    return study.validate(data)


def system(name: str, engine: str | None = None) -> System:
    """Load a system.

    Parameters
    ----------
    name : str
        Name, alias or path.
    engine : str, optional
        Whose efficiencies and budgets it takes; its default engine if none.

    Returns
    -------
    System
        Frozen; numbers in inside units.

    Examples
    --------
    >>> system("dgx-h100").memory.hbm.bandwidth
    3350000000000.0
    """
    return catalog.load_system(name, engine)[0]


def model(name: str) -> Model:
    """Load an architecture.

    Parameters
    ----------
    name : str
        Name, alias, Hugging Face id, or path of a spec or of a ``config.json``.

    Returns
    -------
    Model
        Frozen; what :func:`predict` takes in place of a name.
    """
    return catalog.load_model(name)


def traffic(name: str) -> Traffic:
    """Load a traffic.

    Parameters
    ----------
    name : str
        Name or path.

    Returns
    -------
    Traffic
        Frozen; lengths in tokens.
    """
    return catalog.load_traffic(name)


def names(kind: str = "system") -> list[str]:
    """List the specs of a kind, the user's own first.

    Parameters
    ----------
    kind : str
        ``system``, ``model`` or ``traffic``.

    Returns
    -------
    list of str
    """
    if kind not in catalog.FOLDERS:
        raise UserError(f"unknown kind '{kind}': expected one of {', '.join(catalog.FOLDERS)}")
    return [name for name, _, _ in catalog.entries(kind)]


def show(name: str, engine: str | None = None) -> Any:
    """Show every number of a spec and where it comes from, as ``perfmodel specs show`` does.

    Parameters
    ----------
    name : str
        Name, alias or path of a system, model or traffic.
    engine : str, optional
        As in :func:`system`.

    Returns
    -------
    pandas.DataFrame
        One row a number, indexed by the path that ``set`` takes: value, unit, kind, source, file, note, low and high.
    """
    import pandas as pd

    from perfmodel.outputs.specs import spec_rows

    return pd.DataFrame(spec_rows(name, engine)).set_index("path")


def check(*paths: str | Path) -> list[str]:
    """Check spec files, all problems at once.

    Parameters
    ----------
    *paths : str or path
        Files; all specs if none.

    Returns
    -------
    list of str
        A line a problem, with file, line, field and what was expected; empty where there is none.
    """
    from perfmodel.specs.check import check_files

    return check_files([str(path) for path in paths])[1]
