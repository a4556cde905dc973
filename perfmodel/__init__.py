"""Analytical performance and cost models of inference hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfmodel.api import (
        Answer,
        Comparison,
        Loads,
        check,
        collective,
        compare,
        explain,
        export_csv,
        export_xlsx,
        fit,
        load,
        model,
        names,
        predict,
        report,
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
    from perfmodel.outputs.fit import FitAnswer
    from perfmodel.prediction import Prediction

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Comparison",
    "FitAnswer",
    "Loads",
    "Prediction",
    "UserError",
    "check",
    "collective",
    "compare",
    "explain",
    "export_csv",
    "export_xlsx",
    "fit",
    "load",
    "model",
    "names",
    "predict",
    "report",
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

_HOME = {"FitAnswer": "outputs.fit", "Prediction": "prediction", "UserError": "errors"}


def __getattr__(name: str) -> Any:
    """Import what is asked for: the command line starts faster than the models load."""
    if name not in __all__:
        raise AttributeError(f"module 'perfmodel' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"perfmodel.{_HOME.get(name, 'api')}"), name)
