"""The Python interface: the same words as the command line."""

from __future__ import annotations

import functools
import inspect
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, get_type_hints, overload

from perfmodel import shapes
from perfmodel.errors import UserError
from perfmodel.options import (
    Arrivals,
    CapacityQuestion,
    CostQuestion,
    ExplainQuestion,
    FitQuestion,
    LaunchQuestion,
    Limits,
    LoopQuestion,
    Name,
    PoolsQuestion,
    Priced,
    Quantity,
    RateQuestion,
    Said,
    SimulateQuestion,
    SizeQuestion,
    SolveQuestion,
    Started,
    StoredQuestion,
    flag,
    options_of,
    unknown,
)
from perfmodel.prediction import Prediction, run
from perfmodel.question import (
    Options,
    check_options,
    read_changes,
    read_options,
    resolve,
    split_changes,
    started,
    taken,
    word,
)
from perfmodel.specs import catalog
from perfmodel.specs.types import Model, Scenario, System, Traffic

if TYPE_CHECKING:
    from perfmodel.compilers.explain import Explanation
    from perfmodel.compilers.selfcheck import SelfCheck
    from perfmodel.evidence.cluster.bench import BenchPlan
    from perfmodel.evidence.cluster.calibration import Calibrated
    from perfmodel.evidence.runs import Runs
    from perfmodel.evidence.session_import import Imported
    from perfmodel.evidence.validate import Validation
    from perfmodel.planning.agents import Agents, AgentsBeside
    from perfmodel.planning.agents_cost import OwningAgents
    from perfmodel.planning.agents_simulate import AgentsSimulated
    from perfmodel.planning.agents_size import AgentsSizing
    from perfmodel.planning.capacity import Capacity
    from perfmodel.planning.collective import Collective
    from perfmodel.planning.course import Course
    from perfmodel.planning.fit import FitAnswer
    from perfmodel.planning.launch import Launch
    from perfmodel.planning.load import Rated
    from perfmodel.planning.mixed import Mixed
    from perfmodel.planning.plans import PlanChecked
    from perfmodel.planning.pools import Disaggregated
    from perfmodel.planning.simulate import Comparison as Simulation
    from perfmodel.planning.size import Sizing
    from perfmodel.planning.solve import Solution
    from perfmodel.planning.tco.ownership import Owning
    from perfmodel.serving.objectives import Objectives
    from perfmodel.sweeps.agents import AgentsSweep
    from perfmodel.sweeps.folder import Stored
    from perfmodel.sweeps.space import Space, Sweep

Changes = Mapping[str, Any] | Sequence[str]
_Function = TypeVar("_Function", bound=Callable[..., Any])


# --- reading what was given --------------------------------------------------------------------------------------


def _taking(kind: type | None = None, *optional: str) -> Callable[[_Function], _Function]:
    """Give a function the options of a question as parameters of their own, and refuse a call in the border's words.

    An editor knows the options from the types; ``help``, a notebook and the documentation know them from here.
    ``optional`` are options of the kind that this function can do without.
    """

    def give(function: _Function) -> _Function:
        signature = inspect.signature(function)
        known = options_of(kind) if kind else {}
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        needed = getattr(kind, "__required_keys__", frozenset[str]()) - {*optional}
        types = get_type_hints(kind) if kind else {}
        named = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if name in needed else None,
                annotation=types[name],
            )
            for name in known
        ]
        shown = signature.replace(parameters=[*own, *named])

        @functools.wraps(function)
        def call(*given: Any, **options: Any) -> Any:
            try:
                shown.bind(*given, **options)
            except TypeError as error:
                wrong = next((name for name in options if name not in shown.parameters), None)
                said = str(error) if wrong is None else unknown(wrong, shown.parameters)
                raise UserError(f"{function.__name__}: {said}") from None
            tick = options.get("tick")
            if tick is not None and not callable(tick):
                raise UserError(f"{function.__name__}: tick: expected a function, got {tick!r}")
            return function(*given, **options)

        call.__signature__ = shown  # type: ignore[attr-defined]
        if kind:
            entries = "".join(_entry(name, said, name in needed) for name, said in known.items())
            call.__doc__ = re.sub(r"    \*\*options\n(?:        .*\n)+", entries, function.__doc__ or "")
        return cast(_Function, call)

    return give


def _entry(name: str, said: Said, needed: bool) -> str:
    """Return an option as an entry of a docstring."""
    form = "bool" if said.switch else "str or sequence" if said.many else "float or str" if said.unit else "str"
    optional = "" if needed else ", optional"
    unit = " [s]" if said.unit == "s" else ""
    return f"    {name} : {form}{optional}\n        {said.help.removesuffix('.')}{unit}.\n"


def _model(model: Any) -> str | Model:
    return model if isinstance(model, Model) else word("model", model)


def _one(on: Any) -> str:
    """Read the one system of a question."""
    if isinstance(on, Sequence) and not isinstance(on, str):
        raise UserError("--on: this asks about one system; compare() takes several")
    return word("--on", on)


def _several(name: str, given: Any) -> list[str]:
    """Read names, of systems or models: one, or a sequence."""
    if isinstance(given, str | Path):
        given = [given]
    if isinstance(given, Mapping) or not hasattr(given, "__len__"):
        raise UserError(f"{name} {reprlib.repr(given)}: expected names, as text")
    return [word(name, each) for each in given]


def _systems(on: Any) -> list[str]:
    found = _several("--on", on)
    if not found:
        raise UserError("--on: name at least one system")
    return found


def _scenarios(model: Any, systems: Sequence[str], options: Options, changes: Sequence[str]) -> list[Scenario]:
    """Return the scenarios of a question about several systems."""
    each = zip(systems, split_changes(systems, changes), strict=True)
    return [resolve(_model(model), system, options, own) for system, own in each]


def _scenario(kind: type, model: Any, on: Any, set: Any, given: Mapping[str, Any]) -> tuple[Scenario, dict[str, Any]]:
    """Return the scenario of a question about one system, and what else was given."""
    system = _one(on)
    options, changes, rest = taken(kind, [system], set, given)
    return resolve(_model(model), system, options, changes), rest


def _objectives(given: dict[str, Any], more: Any = None) -> Objectives:
    """Take the objectives out of what was given, and read others by name: ``{"ttft_p99": 0.5}``."""
    from perfmodel.serving.objectives import Objectives

    names = options_of(Limits)
    limits = {name: given.pop(name) for name in names if name in given}
    if more is not None:
        if not isinstance(more, Mapping):
            raise UserError(f"objectives {reprlib.repr(more)}: expected a mapping of names to times")
        for name in more:
            if name not in names:
                raise UserError(f"objective '{name}': expected one of {', '.join(names)}")
            if name in limits:
                raise UserError(f"{flag(name)} is given twice: once as an objective")
        limits |= read_options(Limits, more)
    return Objectives({(time, what): limit for name, limit in limits.items() for time, what in [name.split("_")]})


def _without_rate(given: Mapping[str, Any]) -> None:
    """Refuse what is about a load where no requests arrive."""
    for name, value in given.items():
        if value is not None and name in options_of(Limits):
            raise UserError(f"{flag(name)} is an objective of a load: give --rate with it")
        if value is not None and name in options_of(Arrivals) and name != "prefix_hits":
            raise UserError(f"{flag(name)} is about a load: give --rate with it")


def _with_rate(given: Mapping[str, Any]) -> None:
    """Refuse what is about a closed loop where requests arrive."""
    for name in options_of(Started):
        if given.get(name):
            raise UserError(f"{flag(name)} is about a closed loop of clients: leave it out")


# --- answers -----------------------------------------------------------------------------------------------------


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
        from perfmodel.compilers.explain import explain

        return explain(self.scenario, metric, depth).text()

    def __repr__(self) -> str:
        from perfmodel.outputs.tables import comparison_text

        return comparison_text([self])

    def _repr_html_(self) -> str:
        from perfmodel.outputs.tables import comparison_html

        return comparison_html([self])


def _shown(prediction: Prediction) -> Answer:
    return Answer(**{entry.name: getattr(prediction, entry.name) for entry in fields(prediction)})


@overload
def predict(model: Name | Model, *, on: Name, set: Changes = (), **options: Unpack[LoopQuestion]) -> Answer: ...


@overload
def predict(model: Name | Model, *, on: Name, set: Changes = (), **options: Unpack[RateQuestion]) -> Rated: ...


@_taking(RateQuestion, "rate")
def predict(model: Name | Model, *, on: Name, set: Changes = (), **options: Any) -> Answer | Rated | Agents:
    """Answer one question.

    Parameters
    ----------
    model : str, path or Model
        Name, alias, Hugging Face id, path, or a loaded architecture.
    on : str or path
        System, with ``:key=value,...`` for the plan.
    set : mapping or sequence of str
        Changes by path: ``{"system.memory.hbm.bandwidth": "+20%"}``.
    **options
        Of a question: numbers, or text as on the command line.

    Returns
    -------
    Answer, Rated or Agents
        Times in s, rates in 1/s, sizes in B.  With a rate, what :func:`load` returns; with ``sessions``, hit rates,
        times of calls and tasks, and the cliff.

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
    from perfmodel.planning.agents_given import check_given

    if check_given(options):
        from perfmodel.planning import agents_question as agents

        return agents.question(RateQuestion, _model(model), [_one(on)], set, options)[0]
    if options.get("rate") is not None:
        return load(model, on=on, set=set, **options)
    _without_rate(options)
    scenario, rest = _scenario(LoopQuestion, model, on, set, options)
    return _shown(run(started(scenario, rest.get("steady", False))))


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

    def to_dict(self) -> shapes.Comparison:
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


@dataclass(frozen=True)
class Loads:
    """The same load on several systems, side by side.

    Attributes
    ----------
    answers : tuple of Rated
    """

    answers: tuple[Rated, ...]

    def to_frame(self) -> Any:
        """Return a pandas frame, one row an answer."""
        import pandas as pd

        return pd.DataFrame([answer.row() for answer in self.answers])

    def to_dict(self) -> shapes.Comparison:
        """Return the documented JSON object."""
        from perfmodel.outputs.tables import shared

        answers = [answer.to_dict() for answer in self.answers]
        return {
            "answers": answers,
            "assumed": shared([one["assumed"] for one in answers]),
            "warnings": shared([one["warnings"] for one in answers]),
        }

    def __repr__(self) -> str:
        from perfmodel.outputs.sizing import print_load
        from perfmodel.outputs.tables import plain

        return plain(lambda console: print_load(self.answers, console))

    def _repr_html_(self) -> str:
        from perfmodel.outputs.sizing import load_html

        return load_html(self.answers)


@overload
def compare(
    model: Name | Model, *, on: Name | Sequence[Name], set: Changes = (), **options: Unpack[LoopQuestion]
) -> Comparison: ...


@overload
def compare(
    model: Name | Model, *, on: Name | Sequence[Name], set: Changes = (), **options: Unpack[RateQuestion]
) -> Loads: ...


@_taking(RateQuestion, "rate")
def compare(
    model: Name | Model, *, on: Name | Sequence[Name], set: Changes = (), **options: Any
) -> Comparison | Loads | AgentsBeside:
    """Answer the same question on several systems.

    Parameters
    ----------
    model : str, path or Model
        As in :func:`predict`.
    on : sequence of str or path
        Systems, each with ``:key=value,...`` if wanted.
    set : mapping or sequence of str
        Changes by path; ``SYSTEM:PATH`` or ``#2:PATH`` changes one of them only.
    **options
        As in :func:`predict`.

    Returns
    -------
    Comparison, Loads or AgentsBeside
        With a rate, each answer is that of :func:`load`; with ``sessions``, one about users.
    """
    from perfmodel.planning.agents_given import check_given

    systems = _systems(on)
    if check_given(options):
        from perfmodel.planning import agents_question as agents
        from perfmodel.planning.agents import AgentsBeside

        return AgentsBeside(tuple(agents.question(RateQuestion, _model(model), systems, set, options)))
    under_load = options.get("rate") is not None
    if not under_load:
        _without_rate(options)
    asked, changes, rest = taken(RateQuestion, systems, set, options)
    scenarios = _scenarios(model, systems, asked, changes)
    if not under_load:
        steady = rest.get("steady", False)
        return Comparison(tuple(_shown(run(started(scenario, steady))) for scenario in scenarios))
    _with_rate(rest)
    rate, objectives = _rate(asked, rest), _objectives(rest)
    from perfmodel.planning.load import at_rate

    return Loads(tuple(at_rate(scenario, rate, objectives) for scenario in scenarios))


@overload
def sweep(
    model: Name | Model, *, on: Name, axes: Mapping[str, Any], set: Changes = (), **options: Unpack[Priced]
) -> Sweep: ...


@overload
def sweep(
    model: Name | Model, *, on: Name, axes: Mapping[str, Any], set: Changes = (), **options: Unpack[StoredQuestion]
) -> Stored: ...


@_taking(StoredQuestion, "out")
def sweep(
    model: Name | Model, *, on: Name, axes: Mapping[str, Any], set: Changes = (), **options: Any
) -> Sweep | Stored | AgentsSweep:
    """Vary inputs of a question over the product of axes.

    Parameters
    ----------
    model, on, set
        As in :func:`predict`; an axis takes the place of what it names.
    axes : mapping of str to str or sequence
        Values by path: ``"A:B:N"``, ``"A:B:N:log"``, ``"a,b,c"``, or a sequence in the inside unit.
    **options
        As in :func:`predict`.  With ``out``, a folder for any number of points, written in partitions: the same call
        goes on where it was stopped.

    Returns
    -------
    Sweep, Stored or AgentsSweep
        A Sweep has ``to_frame()``, ``best(metric)`` and ``plot(x, y, color)``; with ``out`` it is a Stored, with
        ``to_frame()`` and ``to_dask()``; with ``sessions`` it has ``answers`` and ``to_frame()``.

    Examples
    --------
    >>> result = sweep("llama-3.1-8b", on="dgx-h100", axes={"traffic.concurrency": [1, 8, 64]}, tp=1)
    >>> len(result)
    3
    """
    if not isinstance(axes, Mapping):
        raise UserError(f"axes {reprlib.repr(axes)}: expected a mapping of paths to values")
    if (users := swept_users(model, on, list(axes.items()), set, options)) is not None:
        return users
    space, rest = settled(model, on, list(axes.items()), set, options)
    question = f"perfmodel.sweep({model!r}, on={on!r}, axes={reprlib.repr(dict(axes))})"
    if "out" not in rest:
        return space.evaluate()
    from perfmodel.sweeps import folder

    return folder.run(space, Path(rest.pop("out")), question, **rest)


def swept_users(
    model: Any, on: Any, axes: Sequence[tuple[str, Any]], set: Any, given: Mapping[str, Any]
) -> AgentsSweep | None:
    """Return the answers of a sweep over users with sessions; None where it asks about none."""
    from perfmodel.planning.agents_given import check_given
    from perfmodel.sweeps import agents as study

    if not check_given(given, "users" in dict(axes)):
        return None
    for name in ("out", "keep", "executor", "scheduler", "workers"):
        if given.get(name) is not None:
            raise UserError(f"{flag(name)}: a sweep over users is printed or written by --csv; leave it out")
    read = [(word("--axis", path), _axis(path, values)) for path, values in axes]
    return study.sweep(_model(model), _one(on), read, read_changes(set), given)


def settled(
    model: Any, on: Any, axes: Sequence[tuple[str, Any]], set: Any, given: Mapping[str, Any]
) -> tuple[Space, dict[str, Any]]:
    """Return the space of a sweep, and how it is to be written; the command line's way in."""
    from perfmodel.sweeps import asking

    system = _one(on)
    asked, changes, rest = taken(StoredQuestion, [system], set, given)
    if "workers" in rest:
        rest["workers"] = int(rest["workers"])
    if "out" in rest:
        rest["out"] = word("--out", rest["out"])
    elif rest:
        raise UserError(f"{flag(next(iter(rest)))} needs --out DIR, a folder for the partitions")
    read = [(word("--axis", path), _axis(path, values)) for path, values in axes]
    return asking.space(_model(model), system, read, asked, changes), rest


def _axis(path: str, values: Any) -> str | list[Any]:
    """Return the values of an axis as text, or a list of texts and numbers, which are in the inside unit."""
    if isinstance(values, str):
        return values
    numbers = [values] if isinstance(values, Real) else list(values) if hasattr(values, "__len__") else []
    if not numbers or isinstance(values, Mapping | bytes):
        raise UserError(f"--axis {path}: give at least one value, as A:B:N, A:B:N:log or a,b,c")
    for value in numbers:
        if not isinstance(value, str | Path | Real):
            raise UserError(f"--axis {path} {reprlib.repr(value)}: expected a number or a text")
    words = (str(value) if isinstance(value, Path) else value for value in numbers)
    return [word if isinstance(word, str | bool | int) else float(word) for word in words]


@_taking(FitQuestion)
def fit(model: Name | Model, *, on: Name, set: Changes = (), **options: Unpack[FitQuestion]) -> FitAnswer:
    """Answer whether a model fits, with how many tokens of KV cache and how many requests of a length.

    Parameters
    ----------
    model, on, set
        As in :func:`predict`.
    **options
        As in :func:`predict`, and the tokens of a request: those of a traffic where one is given.

    Returns
    -------
    FitAnswer
        Sizes in B, those of one chip; tokens and requests of all replicas.

    Examples
    --------
    >>> fit("llama-3.1-8b", on="dgx-h100", tp=1, context=8192).fits
    True
    """
    from perfmodel.planning.fit import ask

    system = _one(on)
    asked, changes, rest = taken(FitQuestion, [system], set, options)
    return ask(_model(model), system, asked, changes, rest.get("context"))


@_taking(ExplainQuestion)
def explain(
    metric: str, model: Name | Model, *, on: Name, set: Changes = (), **options: Unpack[ExplainQuestion]
) -> Explanation:
    """Explain how a number came about.

    Parameters
    ----------
    metric : str
        A key of the JSON or a column of ``--csv``, its unit suffix optional.
    model, on, set
        As in :func:`predict`.
    **options
        As in :func:`predict`.

    Returns
    -------
    Explanation
        With ``text()``, ``latex()``, ``to_dict()`` and ``elasticities``.
    """
    from perfmodel.compilers import explain as output
    from perfmodel.results import check_priced

    check_priced(word("METRIC", metric), options)
    scenario, rest = _scenario(ExplainQuestion, model, on, set, options)
    scenario = started(scenario, rest.get("steady", False))
    return output.explain(scenario, word("METRIC", metric), int(rest.get("depth", 4)))


@_taking(SolveQuestion)
def solve(
    metric: str, model: Name | Model, *, on: Name, set: Changes = (), **options: Unpack[SolveQuestion]
) -> Solution:
    """Find the value of an input at which a metric meets a target.

    Parameters
    ----------
    metric, model, on, set
        As in :func:`explain`.
    **options
        As in :func:`predict`; a target is text with its unit, ``"20 ms"``, or a number in the inside unit.

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
    from perfmodel.planning import solve as study
    from perfmodel.results import check_priced

    check_priced(word("METRIC", metric), options)
    scenario, rest = _scenario(SolveQuestion, model, on, set, options)
    target = rest["target"]
    if isinstance(target, bool) or not isinstance(target, str | float | int):
        raise UserError(f"--target {target!r}: expected a number, or a text with its unit")
    return study.solve(scenario, word("METRIC", metric), rest["for_"], target)


@_taking()
def collective(
    operation: str, *, on: Name, tp: Quantity, message: Quantity, engine: str | None = None, set: Changes = ()
) -> Collective:
    """Answer how long one collective takes by itself, in a CUDA graph.

    Parameters
    ----------
    operation : str
        ``all-reduce`` or ``all-to-all``.
    on : str or path
        System.
    tp : float or str
        Ranks of the group [1].
    message : str or float
        What each rank contributes: ``"1 MB"``, or bytes [B].
    engine : str, optional
        Whose algorithm; the default of the system if none.
    set : mapping or sequence of str
        Changes by path.

    Returns
    -------
    Collective
        ``times`` by algorithm [s].

    Examples
    --------
    >>> sorted(collective("all-reduce", on="dgx-h100", tp=8, message="1 MB").times)
    ['NCCL, closed form', "the engine's own, measured"]
    """
    from perfmodel.planning import collective as output

    asked = None if engine is None else word("--engine", engine)
    return output.ask(word("OPERATION", operation), _one(on), tp, message, asked, read_changes(set))


@_taking(LaunchQuestion)
def launch(model: Name | Model, *, on: Name | None = None, set: Changes = (), **options: Any) -> Launch:
    """Return what starts the engines of a plan; nothing is started.

    Parameters
    ----------
    model : str, path or Model
        Name, alias, Hugging Face id, path, or a loaded architecture; without a system a saved plan, or the log of a
        server that printed its arguments.
    on : str or path, optional
        System, with ``:key=value,...`` for the plan; of two pools the one for decode.
    set : mapping or sequence of str
        Changes by path.
    **options
        Of a question, with ``format`` and ``prefill_on``.

    Returns
    -------
    Launch
        ``text()`` is what the command line prints.

    Examples
    --------
    >>> launch("llama-3.1-8b", on="dgx-h100:tp=1", context=8192).commands[0].words[:2]
    ('vllm', 'serve')
    """
    from perfmodel.planning.launch import Wanted, of_scenarios

    given = read_options(LaunchQuestion, options)
    if on is None:
        from perfmodel.evidence.runs.started import launch_file

        others = [flag(name) for name in given if name != "format"] + (["--set"] if set else [])
        if isinstance(model, Model) or not Path(model).is_file():
            raise UserError("launch: give --on SYSTEM with a model, or the file of a saved plan or of a server's log")
        if others:
            raise UserError(f"launch: {', '.join(others)} goes with --on; a file has its own")
        return launch_file(Path(model), given.get("format", "shell"))
    prefill_on, more = given.get("prefill_on"), {"format", "prefill_on", "context"}
    rest = {name: value for name, value in options.items() if name not in more}
    systems = {"": on} if prefill_on is None else {"prefill": prefill_on, "decode": on}
    asked, changes, _ = taken(LoopQuestion, names := [_one(system) for system in systems.values()], set, rest)
    each = _scenarios(model, names, asked, changes)
    scenarios = dict(zip(systems, each, strict=True))
    wished = model.name if isinstance(model, Model) else str(model)
    load = float(each[0].traffic.concurrency) if "concurrency" in given else None
    wanted = Wanted(wished, str(given.get("draft") or ""), given.get("context"), load)
    return of_scenarios(scenarios, wanted, given.get("format", "shell"))


@_taking()
def selfcheck(*files: Name) -> SelfCheck:
    """Prove on this machine what every answer rests on, in seconds.

    Parameters
    ----------
    *files : str or path
        Specs of one's own, which must load.

    Returns
    -------
    SelfCheck
        ``holds`` says whether nothing failed.

    Examples
    --------
    >>> selfcheck().holds
    True
    """
    from perfmodel.compilers import selfcheck as proof

    return proof.selfcheck(files)


@_taking()
def read_runs(*files: Name, fields: Mapping[str, Any] | Sequence[str] = ()) -> Runs:
    """Read runs of benchmark tools, server logs, power logs and tables of collectives.

    Parameters
    ----------
    *files : str or path
        Told by what they hold.  A server's log gives its layout to the runs beside it.
    fields : mapping or sequence of str
        What the files do not say, by column: ``{"hardware": "dgx-h100", "tp": 8}``.

    Returns
    -------
    Runs
        ``save`` writes the file that :func:`validate` reads.

    Raises
    ------
    UserError
        Where a file is not whole or of no known format, or a field on which the answer depends is missing.
    """
    from perfmodel.evidence import runs

    return runs.read_runs(files, fields)


@_taking()
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


@_taking(CostQuestion)
def tco(
    model: Name | Model, *, on: Name | Sequence[Name], set: Changes = (), **options: Unpack[CostQuestion]
) -> Owning | OwningAgents:
    """Answer what a million tokens cost on each system, what decides it, and how sure that is.

    Parameters
    ----------
    model, on, set
        As in :func:`compare`.
    **options
        As in :func:`predict`; without ``concurrency`` each system runs as many requests as keep ``tpot``, 50 ms where
        neither is given.

    Returns
    -------
    Owning or OwningAgents
        With ``systems``, ``sample`` and ``to_dict()``; with ``sessions`` what a task costs on the least deployment of
        each system that serves the users.
    """
    from perfmodel.compilers import cash
    from perfmodel.planning import agents_cost
    from perfmodel.planning.agents_given import check_given
    from perfmodel.planning.course import growth_of
    from perfmodel.planning.tco import asking, uncertainty
    from perfmodel.writing import check_file

    systems = _systems(on)
    if check_given(options):
        return agents_cost.question(_model(model), systems, set, options)
    asked, changes, rest = taken(CostQuestion, systems, set, options)
    samples = int(rest.get("samples", uncertainty.SAMPLES))
    api = bool(rest.get("against_api"))
    growth = growth_of(word("--growth", rest["growth"])) if "growth" in rest else 0.0
    target = Path(word("cash", rest["cash"])) if "cash" in rest else None
    if target is not None:
        check_file(target, [".csv", ".xlsx"], "--cash")
    result = asking.own(_model(model), systems, asked, changes, rest.get("tpot"), samples, api, growth)
    if target is not None:
        cash.save(result, target)
    return result


@_taking(Priced)
def export_xlsx(
    path: str | Path,
    models: Name | Sequence[Name],
    *,
    on: Name | Sequence[Name],
    set: Changes = (),
    **options: Unpack[Priced],
) -> None:
    """Write a planning workbook of live formulas.

    Parameters
    ----------
    path : str or path
        Ends in ``.xlsx``; written whole or not at all.
    models : sequence of str or path
        Names; each is asked about on each system.  All bundled systems and models of the same equations come with them.
    on, set
        As in :func:`compare`.
    **options
        As in :func:`predict`.
    """
    from perfmodel.compilers import workbook
    from perfmodel.compilers.offers import bundled_offer

    target, systems = Path(word("path", path)), _systems(on)
    workbook.check_path(target)
    given, changes, _ = taken(Priced, systems, set, options)
    offer, asked = bundled_offer(_several("models", models), systems, given, changes)
    workbook.write(offer, target, asked=asked)


@_taking(Priced)
def whatif(
    path: str | Path,
    models: Name | Sequence[Name] = (),
    *,
    on: Name | Sequence[Name] = (),
    **options: Unpack[Priced],
) -> None:
    """Write the what-if page: one HTML file that works offline.

    Parameters
    ----------
    path : str or path
        Ends in ``.html``; written whole or not at all.
    models : sequence of str or path
        Names; all bundled ones if none.
    on : sequence of str or path
        Systems; a dozen if none.
    **options
        As in :func:`predict`.
    """
    from perfmodel.compilers import whatif as output

    systems = _several("--on", on)
    asked, _, _ = taken(Priced, systems, (), options)
    output.write(_several("models", models), systems, asked, Path(word("path", path)))


def _rate(options: Options, given: dict[str, Any]) -> float:
    """Take the rate out of what was given [1/s]."""
    rate = float(given.pop("rate"))
    if options.concurrency is not None:
        raise UserError("give either --rate or --concurrency")
    return rate


@overload
def size(
    model: Name | Model,
    *,
    on: Name | Sequence[Name],
    objectives: Mapping[str, Quantity] | None = None,
    set: Changes = (),
    tick: Callable[[str], None] | None = None,
    **options: Unpack[SizeQuestion],
) -> Sizing | Course | Mixed: ...


@overload
def size(
    model: Name | Model,
    *,
    on: Name | Sequence[Name],
    objectives: Mapping[str, Quantity] | None = None,
    set: Changes = (),
    tick: Callable[[str], None] | None = None,
    **options: Unpack[PoolsQuestion],
) -> Disaggregated: ...


@_taking(PoolsQuestion, "prefill_on", "rate")
def size(
    model: Name | Model,
    *,
    on: Name | Sequence[Name],
    objectives: Mapping[str, Quantity] | None = None,
    set: Changes = (),
    tick: Callable[[str], None] | None = None,
    **options: Any,
) -> Sizing | Course | Mixed | Disaggregated | AgentsSizing:
    """Search how many systems, of which kind, in which plan, serve a rate within objectives.

    Parameters
    ----------
    model, on, set
        As in :func:`compare`; what they fix is not searched over.
    objectives : mapping of str to float or str, optional
        Times not to exceed [s], ``{"tpot_p99": 0.05}``, in place of the options of these names.
    tick : callable, optional
        Called with the system that is worked out next.
    **options
        As in :func:`predict`, and what the search is about.  A time as a number is in s.

    Returns
    -------
    Sizing, Course, Mixed, Disaggregated or AgentsSizing
        With ``answers``, ``rejected``, ``reason``, ``to_frame()`` and ``to_dict()``; with several rates or a growth one
        a step; with several traffics (``traffic="chat@40,rag@10"``) ``together`` and ``separate``; with
        ``prefill_on`` two pools.

    Examples
    --------
    >>> found = size("llama-3.1-8b", on=["dgx-h100:tp=1"], rate=20, tpot_p99="50 ms", traffic="chat")
    >>> found.answers[0].load.queue.saturated
    False
    """
    from perfmodel.planning import agents_size
    from perfmodel.planning.agents_given import check_given
    from perfmodel.planning.plans import as_asked
    from perfmodel.planning.sizing import answered

    systems = _systems(on)
    if check_given(options, limited=True):
        return agents_size.question(_model(model), systems, set, options)
    pool = options.get("prefill_on")
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(given.get("rate"), Real):
        given["rate"] = [given["rate"]]
    elif re.search(r",0\d\d", str(given.get("rate"))):
        raise UserError(f"--rate {given['rate']}: a comma parts rates; write 1000 or 1k")
    asked, changes, rest = taken(
        PoolsQuestion, systems if pool is None else [*systems, word("--prefill-on", pool)], set, given
    )
    limits = _objectives(rest, objectives)
    question = as_asked(model, systems, set, {**options, **(objectives or {})})
    return answered(_model(model), systems, asked, changes, rest, limits, question, tick)


@_taking(CapacityQuestion)
def capacity(
    model: Name | Model,
    *,
    on: Name | Sequence[Name],
    objectives: Mapping[str, Quantity] | None = None,
    set: Changes = (),
    tick: Callable[[str], None] | None = None,
    **options: Unpack[CapacityQuestion],
) -> Capacity:
    """Answer how many requests a second machines that one has serve within objectives.

    Parameters
    ----------
    model, on, set, objectives, tick
        As in :func:`size`.
    **options
        As in :func:`predict`, and the nodes that there are.

    Returns
    -------
    Capacity
        With ``answers``, ``verdict()``, ``headroom(answer)``, ``to_frame()`` and ``to_dict()``.
    """
    from perfmodel.planning.capacity import capacity as most
    from perfmodel.planning.sizing import check_objectives

    systems = _systems(on)
    asked, changes, rest = taken(CapacityQuestion, systems, set, options)
    if asked.concurrency is not None:
        raise UserError("capacity finds the requests at once: leave --concurrency out")
    limits = _objectives(rest, objectives)
    check_objectives("capacity", limits, bool(rest.get("no_objective")))
    return most(
        _model(model),
        systems,
        rest["nodes"],
        limits,
        asked,
        changes,
        rate=rest.get("rate"),
        allow_unmeasured=rest.get("allow_unmeasured", False),
        tick=tick,
    )


@_taking()
def check_plan(path: Name) -> PlanChecked:
    """Answer the question of a saved plan again, and say what moved and why.

    Parameters
    ----------
    path : str or Path
        A file that :func:`size` wrote with ``save``.

    Returns
    -------
    PlanChecked
        With ``holds``, ``answer`` and ``inputs`` that moved, ``why()`` and ``to_dict()``.
    """
    from perfmodel.planning.plans import check

    return check(Path(word("path", path)), cast(Any, size))


@_taking(RateQuestion)
def load(
    model: Name | Model,
    *,
    on: Name,
    objectives: Mapping[str, Quantity] | None = None,
    set: Changes = (),
    **options: Unpack[RateQuestion],
) -> Rated:
    """Put a rate of requests on a plan: percentiles, goodput, headroom and what breaks first.

    Parameters
    ----------
    model, on, set
        As in :func:`predict`.
    objectives : mapping of str to float or str, optional
        As in :func:`size`.
    **options
        As in :func:`predict`; ``dp`` are the replicas.  A time as a number is in s.

    Returns
    -------
    Rated
        With ``load``, ``reason``, ``to_frame()`` and ``to_dict()``.

    Examples
    --------
    >>> answer = load("llama-3.1-8b", on="dgx-h100:tp=1", rate=5, tpot_p99=0.05)
    >>> answer.load.goodput > 4.9
    True
    """
    from perfmodel.planning.load import at_rate

    system = _one(on)
    asked, changes, rest = taken(RateQuestion, [system], set, options)
    _with_rate(rest)
    rate, limits = _rate(asked, rest), _objectives(rest, objectives)
    return at_rate(resolve(_model(model), system, asked, changes), rate, limits)


@_taking(SimulateQuestion)
def simulate(
    model: Name | Model,
    *,
    on: Name,
    set: Changes = (),
    tick: Callable[[int], None] | None = None,
    **options: Unpack[SimulateQuestion],
) -> Simulation | AgentsSimulated:
    """Run replicas token by token, beside the closed form of :func:`load`, or of :func:`predict` in a closed loop.

    Give one of ``rate``, ``trace``, ``concurrency``, the clients of a closed loop, and ``sessions`` with ``users``, of
    which the cache is simulated.

    Parameters
    ----------
    model, on, set
        As in :func:`predict`.
    tick : callable, optional
        Called with the number of requests that ended since the last call.
    **options
        As in :func:`predict`; ``dp`` are the replicas, of which up to eight are simulated.

    Returns
    -------
    Comparison or AgentsSimulated
        With ``simulated`` and ``differences()``.

    Examples
    --------
    >>> ran = simulate("llama-3.1-8b", on="dgx-h100:tp=1", rate=5, requests=200)
    >>> ran.simulated["tpot_s"]["mean"] > 0
    True
    """
    from perfmodel.planning import agents_simulate
    from perfmodel.planning import simulate as study
    from perfmodel.planning.agents_given import check_given

    counted = str(options.get("sessions", "")).replace(",", "")
    if counted.isdigit():
        raise UserError(f"--sessions {counted}: a closed loop of so many clients is --concurrency")
    if check_given(options):
        for name in ("trace", "requests"):
            if options.get(name) is not None:
                raise UserError(f"{flag(name)}: sessions have their own calls; leave it out")
        return agents_simulate.question(_model(model), _one(on), set, options)
    arriving = [name for name in ("rate", "trace", "concurrency") if options.get(name) is not None]
    if len(arriving) != 1:
        raise UserError("give one of --rate, --trace, --concurrency and --sessions")
    _enters_simulation(arriving[0], options)
    system = _one(on)
    asked, changes, rest = taken(SimulateQuestion, [system], set, options)
    scenario = resolve(_model(model), system, asked, changes)
    if asked.concurrency is None:
        _with_rate(rest)
    else:
        scenario = started(scenario, rest.get("steady", False))
    if "trace" in rest and "seed" in rest and float(scenario.deployment.dp) == 1:
        raise UserError("--seed: one replica replays a trace as it is, and nothing is drawn; leave it out")
    return study.ask(
        scenario,
        rate=_rate(asked, rest) if "rate" in rest else None,
        trace=rest.get("trace"),
        concurrency=asked.concurrency,
        count=int(rest["requests"]) if "requests" in rest else None,
        seed=int(rest.get("seed", 1)),
        tick=tick,
    )


def _enters_simulation(arriving: str, options: Mapping[str, Any]) -> None:
    """Refuse what a trace or a closed loop has of its own."""
    own = {"rate": (), "concurrency": ("arrival_scv",), "trace": ("arrival_scv", "lengths", "prompt", "output")}
    for name in own[arriving]:
        if options.get(name) is not None:
            what = (
                "a trace has arrivals and lengths of its own"
                if arriving == "trace"
                else "a closed loop has no arrivals"
            )
            raise UserError(f"{flag(name)}: {what}; leave it out")


@_taking()
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
    from perfmodel.reports import page as output

    recipe = word("NAME", name)
    folder = Path(word("--out", out)) if out is not None else Path("reports", "build", Path(recipe).stem)
    return output.save(recipe, folder)[0]


@_taking()
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
    from perfmodel.evidence import validate as study

    return study.validate(None if data is None else word("--data", data))


@_taking()
def bench_plan(
    model: Name | Model,
    *,
    on: Name,
    for_: str | None = None,
    runs: Quantity | None = None,
    engine: str | None = None,
) -> BenchPlan:
    """Choose the few runs after which a cluster is known best.

    Parameters
    ----------
    model : str, path or Model
    on : str or path
        System with its plan.
    for_ : str, optional
        Prompt and output tokens that will be asked about: ``"1024/1024,8192/1024"``.
    runs : float or str, optional
        How many; 5 if not given.
    engine : str, optional
        The serving engine; the default of the system if none.

    Returns
    -------
    BenchPlan
        ``runs``, the one that says most first, each with what is expected, its cost and its command.
    """
    from perfmodel.evidence.cluster import bench

    asked = None if engine is None else word("--engine", engine)
    return bench.plan(_model(model), _one(on), None if for_ is None else word("--for", for_), runs, asked)


@_taking()
def calibrate(data: str | Path, out: str | Path | None = None) -> Calibrated:
    """Fit the numbers of your chip and engine to your own runs, on top of the shipped ones.

    Parameters
    ----------
    data : str or path
        A CSV with the columns that :func:`validate` reads.
    out : str or path, optional
        The folder of your specs, below which ``hardware_specs/calibration/CHIP-ENGINE[-RELEASE].yaml`` is written; the
        current one if none.

    Returns
    -------
    Calibrated
        ``clusters`` with ``numbers``, ``errors`` before and of runs left out, ``bands`` and what to measure ``next``.
    """
    from perfmodel.evidence.cluster import calibration

    return calibration.calibrate(word("--data", data), None if out is None else word("--out", out))


@_taking()
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
    asked = None if engine is None else word("--engine", engine)
    check_options(Options(engine=asked))
    return catalog.load_system(word("NAME", name), asked)[0]


@_taking()
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
    return catalog.load_model(word("NAME", name))


@_taking()
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
    return catalog.load_traffic(word("NAME", name))


@_taking()
def read_traffic(path: Name, *, out: Name | None = None) -> Imported:
    """Make a kind of session of a trace.

    Parameters
    ----------
    path : str or path
        Trace: CSV, Mooncake, WEKA, Dynamo, AIPerf, or conversations of vLLM's multi-turn benchmark.
    out : str or path, optional
        Session file to write, whole or not at all.

    Returns
    -------
    Imported
        ``figures`` has hit ceiling, reads over writes and input over output.
    """
    from perfmodel.evidence import session_import

    return session_import.read(word("FILE", path), None if out is None else word("--out", out))


@_taking()
def names(kind: str = "systems") -> list[str]:
    """List the specs of a kind, the user's own first.

    Parameters
    ----------
    kind : str
        ``systems``, ``models`` or ``traffics``; the singular does too.

    Returns
    -------
    list of str
    """
    return [name for name, _, _ in catalog.entries(catalog.kind_named(word("KIND", kind)))]


@_taking()
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

    rows = spec_rows(word("NAME", name), None if engine is None else word("--engine", engine))
    return pd.DataFrame(rows).set_index("path")


@_taking()
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

    return check_files([word("FILE", path) for path in paths])[1]
