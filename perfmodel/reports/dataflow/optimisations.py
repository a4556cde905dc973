"""Figures 10 to 13: KernelLooping, BatchStreaming, ScheduleOffloading."""

from __future__ import annotations

import statistics

from perfmodel.evidence import dataflow_fit
from perfmodel.evidence.dataflow_fit import MODELS, figures, sn40
from perfmodel.reports.dataflow.common import (
    LOOPED_NAMES,
    OFFLOADED_NAMES,
    PAPER,
    SN40_BANDWIDTH,
    Entry,
    bars,
    copied,
    median,
    numbers,
    predicted,
    scores,
    target_met,
)
from perfmodel.reports.figures import Chart, Claim, Figure, Layer, Number, figure
from perfmodel.specs import catalog


@figure("dataflow-10")
def figure_10() -> Figure:
    """KernelLooping."""
    machine, entries = sn40(), []
    for model, setting, value in figures()["fig10_kernel_looping_speedup"]:
        if model == "GeoMean":
            continue
        name, precision = LOOPED_NAMES[model]
        context, batch = 1024 * float(setting.split("K")[0]), float(setting.split("BS")[1])
        gain = dataflow_fit.kernel_looping(machine, name, batch, context, precision)
        entries.append(Entry(setting, model, value, gain, (model, setting) == dataflow_fit.LOOPING_BAR))
    unseen = predicted(entries)
    errors = [entry.error for entry in unseen]
    constant = min(
        (step / 1000 for step in range(1000, 2300)), key=lambda c: median(c / entry.printed - 1 for entry in entries)
    )
    naive = [constant / entry.printed - 1 for entry in unseen]
    geometric = statistics.geometric_mean(entry.computed for entry in entries)
    worst = sorted(unseen, key=lambda entry: -abs(entry.error))[:4]
    return Figure(
        "Figure 10: KernelLooping",
        f"One bar fitted, 31 predicted with a median error of {median(errors):.0%}; the best constant, which has seen "
        f"all of them, has {median(naive):.0%}. The geometric mean is {geometric:.2f} (printed 1.6).",
        charts=(bars("fig-10", "Gain of KernelLooping", entries, "", "gain [1]", across=True),),
        numbers=(
            *numbers(entries, "1", "Figure 10"),
            Number("geometric mean", geometric, "1", 1.6, source=f"{PAPER}, Figure 10"),
        ),
        claims=(
            target_met(
                "Half the median error of the best constant",
                median(errors) <= median(naive) / 2,
                f"{median(errors):.1%} against {median(naive):.1%}",
            ),
            target_met("Geometric mean 1.6 within 0.1", abs(geometric - 1.6) <= 0.1, f"{geometric:.2f}"),
        ),
        tables=(
            scores(
                f"31 bars. The constant is {constant:.2f}.",
                (("ours", errors, "5 of the 9"), ("best constant", naive, "1, fitted on all 32")),
            ),
        ),
        notes=(
            "The worst: " + ", ".join(f"{one.series} {one.place} {one.error:+.0%}" for one in worst) + ".",
            "The bars are not monotone in batch (3B: 1.5, 2.2, 1.3; 70B: 1.6, 2.1), and 8B falls from 2.1 at 8K to 1.2 "
            "at 16K; nothing in the paper says what changes there. A boundary that does not depend on the batch cannot "
            "follow them.",
            "Printed values have two digits, so their rounding alone is up to 4 %.",
        ),
    )


@figure("dataflow-11")
def figure_11() -> Figure:
    """Use of HBM over one decoder."""
    import pandas as pd

    printed = figures()["fig11"]
    model = catalog.load_model(MODELS["8B"])
    machine = sn40()
    layers = float(model.layers[0].count)
    step, rest = machine.step("8B"), machine.step("8B", warm_up=0.0)
    head = float(model.vocab) * float(model.hidden) * 2
    moved = (float(step.bytes_moved) - head) / layers / 16
    looped = (float(rest.busy) - head / SN40_BANDWIDTH / float(machine.efficiency.memory)) / layers
    base = looped + float(machine.efficiency.kernel_boundary)
    rates = {"base": moved / base / 1e9, "looped": moved / looped / 1e9}
    scale = printed["max_line_GBs"] / 1600
    values = [
        Number(
            "base, average of a socket", rates["base"], "GB/s", printed["avg_base_GBs"], source=f"{PAPER}, Figure 11"
        ),
        Number(
            "looped, average of a socket", rates["looped"], "GB/s", printed["avg_KL_GBs"], source=f"{PAPER}, Figure 11"
        ),
        Number(
            "base, on the axis of the figure", rates["base"] * scale, "GB/s", printed["avg_base_GBs"], "reconstructed"
        ),
        Number(
            "looped, on the axis of the figure", rates["looped"] * scale, "GB/s", printed["avg_KL_GBs"], "reconstructed"
        ),
        Number("first decoder", (looped + float(machine.efficiency.warm_up)) * 1e6, "us", 42.0, fitted=True),
    ]
    warm = float(machine.efficiency.warm_up)
    spans = {
        "base": [(at * base, at * base + looped) for at in range(3)],
        "looped": [(warm, warm + 3 * looped)],
    }
    rows = [
        {"time": 1e6 * time, "rate": rate, "series": name}
        for name, streaming in spans.items()
        for start, stop in streaming
        for time, rate in ((start, 0.0), (start, moved / looped / 1e9), (stop, moved / looped / 1e9), (stop, 0.0))
    ]
    chart = Chart(
        "fig-11",
        "HBM of one socket over three decoders",
        pd.DataFrame(rows),
        {"time": "time [us]", "rate": "bandwidth [GB/s]", "series": "decoder"},
        "time",
        "rate",
        color="series",
        caption="Our machine: what streams, streams evenly; the printed trace is not digitised point by point.",
    )
    return Figure(
        "Figure 11: HBM over one decoder of Llama-3.1-8B",
        f"{rates['base']:.0f} and {rates['looped']:,.0f} GB/s a socket where 455 and 1,500 are printed; on the axis of "
        f"the figure, whose limit is 1,800 and not 1,600 GB/s, {rates['base'] * scale:.0f} and "
        f"{rates['looped'] * scale:,.0f}.",
        charts=(chart,),
        numbers=tuple(values),
        claims=(
            Claim(
                "455 GB/s base and 1,500 looped",
                "depends",
                "weights and cache of a decoder over the printed times give 12 to 15 % less; the axis of the figure is "
                "12.5 % too high against the 1.6 TB/s of the text, which is the same factor",
            ),
        ),
        notes=("Fitted: the looped decoder of 21.5 us, the first one of 42 us, the base one of 73 us.",),
    )


@figure("dataflow-12")
def figure_12() -> Figure:
    """BatchStreaming."""
    table, machine = figures()["fig12_batchstreaming"], sn40()
    printed = {name: table[name] for name in ("1B", "3B", "8B")}
    entries = [
        Entry(
            f"{batch:g}",
            name,
            value,
            dataflow_fit.batch_streaming(machine, name, float(batch)),
            name == dataflow_fit.STREAMING_ROW,
        )
        for name, values in printed.items()
        for batch, value in zip(table["BS"], values, strict=True)
    ]
    errors = [entry.error for entry in predicted(entries)]
    naive = copied(printed, dataflow_fit.STREAMING_ROW)
    worst = max(predicted(entries), key=lambda entry: abs(entry.error))
    return Figure(
        "Figure 12: BatchStreaming",
        f"From the row of 1B, 3B and 8B come out with a mean error of {statistics.mean(map(abs, errors)):.1%}; copying "
        f"the row has {statistics.mean(map(abs, naive)):.1%}.",
        charts=(bars("fig-12", "Gain of BatchStreaming", entries, "batch", "gain [1]", "model"),),
        numbers=numbers(entries, "1", "Figure 12"),
        claims=(
            target_met(
                "Half the error of copying the row, by the mean",
                statistics.mean(map(abs, errors)) <= statistics.mean(map(abs, naive)) / 2,
                f"{statistics.mean(map(abs, errors)):.1%} against {statistics.mean(map(abs, naive)):.1%}",
            ),
            target_met(
                "Half the error of copying the row, by the median",
                median(errors) <= median(naive) / 2,
                f"{median(errors):.1%} against {median(naive):.1%}: 3B's row is 1B's within 2 %",
            ),
        ),
        tables=(scores("Eight values.", (("ours", errors, "1 of the 9"), ("copy of 1B", naive, "4 copied"))),),
        notes=(
            f"The worst: {worst.series} at batch {worst.place}, {worst.error:+.0%}. The printed gain of small models "
            "rises to batch 8 and falls at 16; ours rises on, because nothing limits how many samples are in flight. "
            "8B, whose weights take longer than its samples, gains nearly nothing, as printed.",
        ),
    )


@figure("dataflow-13")
def figure_13(drafted: float = 9.0) -> Figure:
    """ScheduleOffloading."""
    import pandas as pd

    table, machine = figures()["fig13_schedule_offload_k9"], sn40()
    entries = [
        Entry(
            batch,
            name,
            value,
            dataflow_fit.schedule_offloading(machine, OFFLOADED_NAMES[name], float(batch), drafted),
            name == dataflow_fit.OFFLOADING_ROW,
        )
        for name, row in table.items()
        for batch, value in row.items()
    ]
    errors = [entry.error for entry in predicted(entries)]
    naive = [
        table[dataflow_fit.OFFLOADING_ROW][batch] / value - 1
        for name, row in table.items()
        if name != dataflow_fit.OFFLOADING_ROW
        for batch, value in row.items()
    ]
    tokens = (1.0, 2.0, 3.0, 5.0, 9.0, 15.0, 20.0, 30.0, 50.0, 100.0)
    curve = [
        {"tokens": m, "gain": dataflow_fit.schedule_offloading(machine, model, 1.0, m), "model": name}
        for name, model in OFFLOADED_NAMES.items()
        for m in tokens
    ]
    reached = [
        (dataflow_fit.schedule_offloading(machine, model, 1.0, 20.0) - 1)
        / (dataflow_fit.schedule_offloading(machine, model, 1.0, 1e9) - 1)
        for model in OFFLOADED_NAMES.values()
    ]
    chart = Chart(
        "fig-13-m",
        "Gain of ScheduleOffloading against the tokens that the host schedules at once",
        pd.DataFrame(curve),
        {"tokens": "tokens at once, M", "gain": "gain [1]", "model": "model"},
        "tokens",
        "gain",
        (Layer("line"), Layer("point")),
        color="model",
        log="x",
    )
    return Figure(
        "Figure 13: ScheduleOffloading, draft only, k = 9",
        f"From the row of 8B, 0.5B, 1B and 3B come out with a median error of {median(errors):.1%}; copying the row "
        f"has {median(naive):.0%}. At M = 20 at least {min(reached):.0%} of all that can be gained are gained.",
        charts=(bars("fig-13", "Gain of ScheduleOffloading", entries, "batch", "gain [1]", "model"), chart),
        numbers=numbers(entries, "1", "Figure 13"),
        claims=(
            target_met(
                "Half the error of copying the row",
                median(errors) <= median(naive) / 2,
                f"{median(errors):.1%} against {median(naive):.1%}",
            ),
            target_met(
                "The gain flattens near M = 20", min(reached) >= 0.85, f"{min(reached):.0%} to {max(reached):.0%}"
            ),
        ),
        tables=(scores("13 values.", (("ours", errors, "2 of the 9"), ("copy of 8B", naive, "5 copied"))),),
        notes=(
            "What makes it work is that 0.5B, 1B and 3B are bound by a sample's way through a decoder and not by "
            "bytes: 20.5 us, Figure 11's first decoder less a later one.",
        ),
    )
