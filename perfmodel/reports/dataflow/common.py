"""What the figures share: entries of printed and computed values, their charts and scores, and the rooflines."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from perfmodel.equations import roofline
from perfmodel.evidence.dataflow_fit import MODELS
from perfmodel.machines.kv_cache import kv_bytes_per_token
from perfmodel.reports.figures import Chart, Claim, Layer, Number, Table, Verdict
from perfmodel.specs import catalog
from perfmodel.specs.types import Model
from perfmodel.specs.weights import total_parameters

PAPER = "Dataflow Is All You Need (MLSys 2026)"
#: Names of Figure 10.
LOOPED_NAMES = {
    "Llama3.1-8B": ("8B", "bf16"),
    "Llama3.2-3B": ("3B", "bf16"),
    "Mixtral8x7B": ("mixtral-8x7b", "bf16"),
    "Llama3.1-70B": ("70B", "bf16"),
    "Qwen2.5-72B": ("72B", "bf16"),
    "Llama3.1-405B": ("405B", "bf16"),
    "DeepSeek-R1-671B": ("deepseek-r1", "fp8"),
    "Llama4-17B128E": ("llama-4-maverick", "fp8"),
    "GPT-OSS-120B": ("gpt-oss-120b", "fp8"),
}
OFFLOADED_NAMES = {"Qwen2.5-0.5B": "0.5B", "Llama3.2-1B": "1B", "Llama3.2-3B": "3B", "Llama 8B": "8B"}
#: The hidden setting of Figures 14 and 15: drafts and tokens a step are worked out from the ratio of the two panels.
HIDDEN = {"70B_4K": ("70B", "1B", 5.07), "405B_4K": ("405B", "3B", 4.55)}
#: Optimisations of Figure 14a, one added after the other.
STAGES: dict[str, dict[str, bool]] = {
    "B": {"kernel_looping": False, "batch_streaming": False, "schedule_offloading": False},
    "B+KL": {"batch_streaming": False, "schedule_offloading": False},
    "B+KL+BS": {"schedule_offloading": False},
    "B+KL+BS+SO": {},
}
SN40_BANDWIDTH = 25.6e12


@dataclass(frozen=True)
class Entry:
    """A printed value and what the models make of it."""

    place: str
    series: str
    printed: float
    computed: float
    fitted: bool = False

    @property
    def error(self) -> float:
        """Signed error."""
        return self.computed / self.printed - 1


def median(errors: Iterable[float]) -> float:
    """Return the median size of errors."""
    return statistics.median(abs(error) for error in errors)


def predicted(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries that nothing was fitted on."""
    return [entry for entry in entries if not entry.fitted]


def numbers(entries: Iterable[Entry], unit: str, source: str) -> tuple[Number, ...]:
    """Return entries as the numbers of a figure."""
    return tuple(
        Number(
            f"{entry.series}, {entry.place}",
            entry.computed,
            unit,
            entry.printed,
            fitted=entry.fitted,
            source=f"{PAPER}, {source}",
        )
        for entry in entries
    )


def bars(
    name: str, title: str, entries: Sequence[Entry], x: str, y: str, panels: str = "", across: bool = False
) -> Chart:
    """Return printed and computed bars side by side, with a title for panels where each series has one."""
    import pandas as pd

    ways = (
        ("printed", "published", entries),
        ("computed", "predicted", predicted(entries)),
        ("fitted", "reconstructed", [entry for entry in entries if entry.fitted]),
    )
    rows = [
        {
            "place": entry.place if panels else f"{entry.series} {entry.place}",
            "series": entry.series,
            "value": entry.printed if of == "printed" else entry.computed,
            "of": of,
            "kind": kind,
        }
        for of, kind, some in ways
        for entry in some
    ]
    return Chart(
        name,
        title,
        pd.DataFrame(rows),
        {"place": x, "series": panels or "series", "value": y, "of": "", "kind": "kind"},
        "value" if across else "place",
        "place" if across else "value",
        (Layer("bar"),),
        color="of",
        facet="series" if panels else "",
        across=across,
        caption=f"Printed: {PAPER}.",
    )


def scores(caption: str, rows: Sequence[tuple[str, Sequence[float], str]]) -> Table:
    """Return predictors with the errors on values that none of them was fitted on, and their free parameters."""
    return Table(
        caption,
        ("predictor", "values", "median error", "mean error", "worst", "free parameters"),
        [
            [
                name,
                f"{len(errors)}",
                f"{median(errors):.1%}",
                f"{statistics.mean(map(abs, errors)):.1%}",
                f"{max(errors, key=abs):+.1%}",
                free,
            ]
            for name, errors, free in rows
        ],
        (1, 2, 3, 4),
    )


def claimed(text: str, agrees: bool, why: str) -> Claim:
    """Return a claim of the paper, which holds where what is computed agrees."""
    verdict: Verdict = "holds" if agrees else "fails"
    return Claim(text, verdict, why)


def roofline_step(model: str, batch: float, context: float = 4096.0, bandwidth: float = SN40_BANDWIDTH) -> float:
    """Return the time that equation 3 gives a step: all weights and the cache of the batch, in BF16 [s]."""
    loaded: Model = catalog.load_model(MODELS[model])
    return float(
        roofline.memory_roofline_time(
            weights=2 * total_parameters(loaded),
            kv_per_sequence=context * kv_bytes_per_token(loaded, "bf16"),
            sequences=batch,
            bandwidth=bandwidth,
        )
    )


def copied(printed: Mapping[str, Sequence[float]], from_row: str) -> list[float]:
    """Return the errors of copying one row to the others, place by place."""
    return [
        copied / value - 1
        for row, values in printed.items()
        if row != from_row
        for copied, value in zip(printed[from_row], values, strict=False)
    ]
