"""What requests look like: P:D and context over time, and the lengths of two production samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from perfmodel.reports.figures import Chart, Claim, Figure, Layer, Number, Table, figure
from perfmodel.reports.ship.data import only_known, table
from perfmodel.reports.ship.samples import KI, SAMPLES

TITLES = {
    "azure_llm_2023_conv": "Azure 2023 conversation",
    "azure_llm_2023_code": "Azure 2023 code",
    "mooncake_conversation_trace": "Mooncake conversation",
    "mooncake_synthetic_trace": "Mooncake synthetic",
}
SOURCE = "Azure LLM inference trace 2023 (CC-BY-4.0) and Mooncake FAST25 traces (Apache-2.0), ten-minute windows"


@figure("ship-workload")
def workload(traces: Sequence[str] = tuple(TITLES)) -> Figure:
    """P:D and context over time (Figure 2), and the share of short requests (Appendix D.1)."""
    only_known(traces, TITLES)
    ratio = (
        table("traces/ratio.csv")
        .query("trace in @traces")
        .assign(minutes=lambda frame: frame.end_s / 60, name=lambda frame: frame.trace.map(TITLES))
    )
    summary = table("traces/summary.csv").set_index("trace").loc[list(traces)]
    band = ratio.groupby("name").pd_ratio.agg(["min", "max"]).loc[[TITLES[name] for name in traces]]
    quantiles = (
        table("traces/lengths.csv")
        .query("trace in @traces and 0 < quantile < 1")
        .assign(name=lambda frame: frame.trace.map(TITLES), kind="reconstructed")
    )
    shares = quantiles["quantile"].unique()
    fitted = pd.DataFrame(
        [
            {"name": f"SHIP {sample.name}", "quantile": q, "total": length, "kind": "reconstructed"}
            for sample in SAMPLES
            for q, length in zip(shares, np.quantile(sample.lengths(), shares), strict=True)
        ]
    )
    lengths = pd.concat([quantiles[["name", "quantile", "total", "kind"]], fitted], ignore_index=True)
    inside = [str(name) for name, row in band.iterrows() if row["max"] <= 20]
    numbers = [
        Number(
            f"share of {sample.name} requests below 8 Ki tokens",
            sample.share_below(8 * KI),
            "%",
            sample.below_8ki,
            "reconstructed",
            fitted=True,
            source="SHIP, appendix D.1",
            note="truncated lognormal through mean, share and longest request",
        )
        for sample in SAMPLES
    ] + [
        Number(
            f"mean tokens, {sample.name}",
            sample.tokens,
            "tokens",
            sample.mean,
            "reconstructed",
            fitted=True,
            source="SHIP, appendix D.1",
        )
        for sample in SAMPLES
    ]
    numbers += [
        Number(f"share below 8 Ki, {TITLES[str(name)]}", row.share_below_8ki, "%", kind="reconstructed", source=SOURCE)
        for name, row in summary.iterrows()
    ]
    low, high = band["min"].min(), band["max"].max()
    return Figure(
        "P:D and context over time",
        f"In public traces the ten-minute P:D runs from {low:.1f} to {high:.0f}; the paper's seven days show 0 to over "
        f"20. "
        f"Below 8 Ki tokens lie {summary.share_below_8ki.min():.0%} to {summary.share_below_8ki.max():.0%} of the "
        "requests of a trace, 92 and 97 % of the paper's samples.",
        charts=(
            Chart(
                "ship-pd-over-time",
                "Prompt over output tokens, moving average of ten minutes",
                ratio[["name", "minutes", "pd_ratio", "context_mean", "share_below_8ki", "requests"]],
                {
                    "name": "trace",
                    "minutes": "end of the window [min]",
                    "pd_ratio": "P:D",
                    "context_mean": "mean P + D [tokens]",
                    "share_below_8ki": "share below 8 Ki tokens",
                    "requests": "requests in the window",
                },
                "minutes",
                "pd_ratio",
                color="name",
                log="y",
                caption=SOURCE,
                kind="reconstructed",
            ),
            Chart(
                "ship-context-over-time",
                "Mean prompt and output together, moving average of ten minutes",
                ratio[["name", "minutes", "context_mean", "share_below_8ki"]],
                {
                    "name": "trace",
                    "minutes": "end of the window [min]",
                    "context_mean": "mean P + D [tokens]",
                    "share_below_8ki": "share below 8 Ki tokens",
                },
                "minutes",
                "context_mean",
                color="name",
                log="y",
                caption=SOURCE,
                kind="reconstructed",
            ),
            Chart(
                "ship-lengths",
                "Length of requests: traces, and the paper's samples as truncated lognormals",
                lengths,
                {
                    "name": "requests",
                    "quantile": "share of requests that are shorter",
                    "total": "P + D [tokens]",
                    "kind": "kind",
                },
                "total",
                "quantile",
                (Layer("line"), Layer("point")),
                color="name",
                log="x",
                caption=f"{SOURCE}; SHIP, appendix D.1 prints mean, longest request and the share below 8 Ki",
            ),
        ),
        numbers=tuple(numbers),
        tables=(
            Table(
                "Band of P:D in ten-minute windows, and short requests",
                ("trace", "P:D least", "P:D most", "P:D of all", "below 8 Ki"),
                [
                    (
                        TITLES[name],
                        f"{float(least):.1f}",
                        f"{float(most):.1f}",
                        f"{float(whole):.1f}",
                        f"{float(short):.1%}",
                    )
                    for name, least, most, whole, short in zip(
                        traces, band["min"], band["max"], summary.pd_ratio, summary.share_below_8ki, strict=True
                    )
                ],
                (1, 2, 3, 4),
            ),
        ),
        claims=(
            Claim(
                "P:D moves between 0 and over 20 within days",
                "depends",
                f"on the service: {', '.join(inside) or 'none'} of the public traces stays below 20; code and long "
                f"prompts "
                f"reach {high:.0f}. The traces last an hour at most, so that the swing over a week is not tested.",
            ),
            Claim(
                "Nearly all requests are shorter than 8 Ki tokens",
                "depends",
                "on the service: true of Azure's chat and code; about half of Mooncake's are longer.",
            ),
        ),
    )
