"""The one entry: :func:`run` turns a scenario into a prediction."""

from perfmodel.prediction.answer import METRICS, MONEY, Prediction, drafted, per_mtok, plan_of, question_of
from perfmodel.prediction.answering import run
from perfmodel.prediction.bands import MONEY_ROOTS, NEAR_CAP, SPECULATION_SPREAD, band_of, effects_of, time_spreads
from perfmodel.prediction.evaluation import ALL, content, evaluate, numbers, traced

__all__ = [
    "ALL",
    "METRICS",
    "MONEY",
    "MONEY_ROOTS",
    "NEAR_CAP",
    "SPECULATION_SPREAD",
    "Prediction",
    "band_of",
    "content",
    "drafted",
    "effects_of",
    "evaluate",
    "numbers",
    "per_mtok",
    "plan_of",
    "question_of",
    "run",
    "time_spreads",
    "traced",
]
