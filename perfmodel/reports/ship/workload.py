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


def _ratio_frame(traces: Sequence[str]) -> pd.DataFrame:
    """Return P:D, mean context and short requests of each window of ten minutes."""
    return (
        table("traces/ratio.csv")
        .query("trace in @traces")
        .assign(minutes=lambda frame: frame.end_s / 60, name=lambda frame: frame.trace.map(TITLES))
    )


def _lengths_frame(traces: Sequence[str]) -> pd.DataFrame:
    """Return the quantiles of the length of requests: of traces, and of the paper's samples."""
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
    return pd.concat([quantiles[["name", "quantile", "total", "kind"]], fitted], ignore_index=True)


def _bands_frame(traces: Sequence[str], ratio: pd.DataFrame) -> pd.DataFrame:
    """Return a row a trace: least and most P:D of its windows, P:D of all, and the share of short requests."""
    band = ratio.groupby("trace").pd_ratio.agg(["min", "max"]).loc[list(traces)]
    return band.join(table("traces/summary.csv").set_index("trace")[["pd_ratio", "share_below_8ki"]])


def _length_numbers(bands: pd.DataFrame) -> tuple[Number, ...]:
    """Return what the paper prints of its samples beside their fit, and the same of the traces."""
    printed = "SHIP, appendix D.1"
    return (
        *(
            Number(
                f"share of {sample.name} requests below 8 Ki tokens",
                sample.share_below(8 * KI),
                "%",
                sample.below_8ki,
                "reconstructed",
                fitted=True,
                source=printed,
                note="truncated lognormal through mean, share and longest request",
            )
            for sample in SAMPLES
        ),
        *(
            Number(
                f"mean tokens, {sample.name}",
                sample.tokens,
                "tokens",
                sample.mean,
                "reconstructed",
                fitted=True,
                source=printed,
            )
            for sample in SAMPLES
        ),
        *(
            Number(f"share below 8 Ki, {TITLES[str(name)]}", share, "%", kind="reconstructed", source=SOURCE)
            for name, share in bands.share_below_8ki.items()
        ),
    )


def _swing_claims(bands: pd.DataFrame) -> tuple[Claim, ...]:
    """Return what holds of the swing of P:D and of the length of requests."""
    inside = ", ".join(sorted(TITLES[str(name)] for name, most in bands["max"].items() if most <= 20))
    return (
        Claim(
            "P:D moves between 0 and over 20 within days",
            "depends",
            f"on the service: {inside or 'none'} of the public traces stays below 20; code and long prompts reach "
            f"{bands['max'].max():.0f}. The traces last an hour at most, so that the swing over a week is not tested.",
        ),
        Claim(
            "Nearly all requests are shorter than 8 Ki tokens",
            "depends",
            "on the service: true of Azure's chat and code; about half of Mooncake's are longer.",
        ),
    )


def _over_time(ratio: pd.DataFrame, name: str, title: str, y: str, beside: Sequence[str]) -> Chart:
    """Return a quantity of each window over time."""
    titles = {
        "name": "trace",
        "minutes": "end of the window [min]",
        "pd_ratio": "P:D",
        "context_mean": "mean P + D [tokens]",
        "share_below_8ki": "share below 8 Ki tokens",
        "requests": "requests in the window",
    }
    shown = ["name", "minutes", y, *beside]
    return Chart(
        name,
        f"{title}, moving average of ten minutes",
        ratio[shown],
        {column: titles[column] for column in shown},
        "minutes",
        y,
        color="name",
        log="y",
        caption=SOURCE,
        kind="reconstructed",
    )


def _lengths_chart(lengths: pd.DataFrame) -> Chart:
    """Return the distribution of the length of requests."""
    return Chart(
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
    )


@figure("ship-workload")
def workload(traces: Sequence[str] = tuple(TITLES)) -> Figure:
    """P:D and context over time (Figure 2), and the share of short requests (Appendix D.1)."""
    only_known(traces, TITLES)
    ratio = _ratio_frame(traces)
    bands = _bands_frame(traces, ratio)
    short = bands.share_below_8ki
    return Figure(
        "P:D and context over time",
        f"In public traces the ten-minute P:D runs from {bands['min'].min():.1f} to {bands['max'].max():.0f}; the "
        f"paper's seven days show 0 to over 20. Below 8 Ki tokens lie {short.min():.0%} to {short.max():.0%} of the "
        "requests of a trace, 92 and 97 % of the paper's samples.",
        charts=(
            _over_time(
                ratio,
                "ship-pd-over-time",
                "Prompt over output tokens",
                "pd_ratio",
                ("context_mean", "share_below_8ki", "requests"),
            ),
            _over_time(
                ratio,
                "ship-context-over-time",
                "Mean prompt and output together",
                "context_mean",
                ("share_below_8ki",),
            ),
            _lengths_chart(_lengths_frame(traces)),
        ),
        numbers=_length_numbers(bands),
        tables=(
            Table(
                "Band of P:D in ten-minute windows, and short requests",
                ("trace", "P:D least", "P:D most", "P:D of all", "below 8 Ki"),
                [
                    (TITLES[str(name)], f"{least:.1f}", f"{most:.1f}", f"{whole:.1f}", f"{share:.1%}")
                    for name, least, most, whole, share in bands.itertuples()
                ],
                (1, 2, 3, 4),
            ),
        ),
        claims=_swing_claims(bands),
    )
