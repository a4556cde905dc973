"""Analytical performance and cost models of inference hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfmodel.shown import RENDERERS
from perfmodel.version import __version__ as __version__

if TYPE_CHECKING:
    from perfmodel.api import (
        Answer,
        Comparison,
        Loads,
        bench_plan,
        calibrate,
        check,
        collective,
        compare,
        explain,
        export_csv,
        export_xlsx,
        fit,
        launch,
        load,
        model,
        names,
        predict,
        read_runs,
        read_traffic,
        report,
        selfcheck,
        show,
        simulate,
        size,
        solve,
        sweep,
        system,
        tco,
        traffic,
        validate,
        whatif,
    )
    from perfmodel.errors import UserError
    from perfmodel.planning.fit import FitAnswer
    from perfmodel.prediction import Prediction

__all__ = [
    "Answer",
    "Comparison",
    "FitAnswer",
    "Loads",
    "Prediction",
    "UserError",
    "bench_plan",
    "calibrate",
    "capacity",
    "check",
    "check_plan",
    "collective",
    "compare",
    "explain",
    "export_csv",
    "export_xlsx",
    "fit",
    "launch",
    "load",
    "model",
    "names",
    "predict",
    "read_runs",
    "read_traffic",
    "report",
    "selfcheck",
    "show",
    "simulate",
    "size",
    "solve",
    "sweep",
    "system",
    "tco",
    "traffic",
    "validate",
    "whatif",
]

_HOME = {"FitAnswer": "planning.fit", "Prediction": "prediction", "UserError": "errors"}

#: Class of a result: where its text and its HTML are made.
_SHOWN = {
    "planning.fit:FitAnswer": ("outputs.fit:fit_text", "outputs.fit:fit_html"),
    "planning.load:Sized": ("outputs.sizing:load_text", "outputs.sizing:one_load_html"),
    "planning.load:Rated": ("outputs.sizing:load_text", "outputs.sizing:one_load_html"),
    "planning.size:Sizing": ("outputs.sizing:sizing_text", "outputs.sizing:sizing_html"),
    "planning.capacity:Capacity": ("outputs.capacity:capacity_text", None),
    "planning.course:Course": ("outputs.sizing:course_text", None),
    "planning.mixed:Mixed": ("outputs.sizing:mixed_text", None),
    "planning.plans:PlanChecked": ("outputs.plans:checked_text", None),
    "planning.pools:Disaggregated": ("outputs.sizing:pools_text", None),
    "planning.solve:Solution": ("compilers.explain:solved_text", None),
    "planning.simulate:Comparison": ("outputs.simulation:simulation_text", "outputs.simulation:simulation_html"),
    "planning.agents:Agents": ("outputs.agents:agents_text", "outputs.agents:agents_html"),
    "planning.agents_cost:OwningAgents": ("outputs.agents:cost_text", None),
    "planning.agents_simulate:AgentsSimulated": ("outputs.agents:simulated_text", None),
    "planning.agents:AgentsBeside": ("outputs.agents:beside_text", "outputs.agents:beside_html"),
    "evidence.session_import:Imported": ("outputs.traffic:traffic_text", "outputs.traffic:traffic_html"),
    "planning.tco.ownership:Owning": ("outputs.tco:owning_text", "outputs.tco:owning_html"),
    "planning.launch:Launch": ("outputs.launch:launch_text", None),
    "evidence.runs:Runs": ("outputs.runs:runs_text", None),
    "evidence.cluster.bench:BenchPlan": ("outputs.bench_plan:text", None),
    "evidence.cluster.calibration:Calibrated": ("outputs.cluster:text", None),
    "evidence.validate:Validation": ("outputs.validation:text", "outputs.validation_page:fragment"),
}
for _kind, (_text, _html) in _SHOWN.items():
    RENDERERS[f"perfmodel.{_kind}"] = (f"perfmodel.{_text}", _html and f"perfmodel.{_html}")


def __getattr__(name: str) -> Any:
    """Import what is asked for: the command line starts faster than the models load."""
    if name not in __all__:
        raise AttributeError(f"module 'perfmodel' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"perfmodel.{_HOME.get(name, 'api')}"), name)
