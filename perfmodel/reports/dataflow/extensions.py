"""What the paper leaves out: the factorial, other machines, the choice of k, long contexts, and GPUs without gaps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pandas as pd

from perfmodel.equations import speculative
from perfmodel.evidence import dataflow_fit
from perfmodel.evidence.dataflow_fit import figures, sn40
from perfmodel.machines.operators import CAUSES
from perfmodel.prediction import Prediction, evaluate, run
from perfmodel.question import Options, resolve
from perfmodel.reports.dataflow.common import PAPER
from perfmodel.reports.dataflow.systems import alpha_of_ratio
from perfmodel.reports.figures import Chart, Claim, Figure, Layer, Table, figure
from perfmodel.specs.types import Scenario

#: Optimisations by the switch that is theirs.
SWITCHES = {
    "KernelLooping": "kernel_looping",
    "BatchStreaming": "batch_streaming",
    "ScheduleOffloading": "schedule_offloading",
}


def acceptance(pair: str = "70B/1B", k: float = 5.0) -> dict[str, float]:
    """Return the constant acceptance of a row of Table 1 on each data set."""
    table = figures()["table1_AR"]
    return {name: alpha_of_ratio(ratio, k) for name, ratio in zip(table["cols"], table[pair][f"{k:g}"], strict=True)}


def speed_up(answer: Prediction) -> float:
    """Return how much faster a token comes than without a draft, under the same load."""
    plain = evaluate(replace(answer.scenario, speculation=None), ("tpot_s",))
    return float(plain.metrics["tpot_s"]) / float(answer.metrics["tpot_s"])


def asked(
    model: str, on: str, draft: str, k: float, alpha: float, changes: Sequence[str] = (), **load: Any
) -> Scenario:
    """Return the scenario of a question with a draft."""
    return resolve(model, on, Options(draft=draft, k=k, alpha=alpha, **load), changes)


@figure("dataflow-factorial")
def factorial(target: str = "70B", draft: str = "1B", k: float = 5.0, batches: Sequence[float] = (1.0, 8.0)) -> Figure:
    """Every combination of the three optimisations.

    Parameters
    ----------
    target, draft : str
        As the paper names them: 0.5B, 1B, 3B, 8B, 70B, 72B, 405B.
    k : float
        Tokens drafted a step.
    batches : sequence of float
        Sequences in the batch.
    """
    machine, rows, found = sn40(), [], {}
    for batch, on in product(batches, product((False, True), repeat=len(SWITCHES))):
        switches = dict(zip(SWITCHES.values(), on, strict=True))
        name = " + ".join(short for short, is_on in zip(("KL", "BS", "SO"), on, strict=True) if is_on) or "none"
        time = dataflow_fit.speculative_step(machine, target, draft, batch, 4096.0, k, **switches)
        found[batch, on] = time
        rows.append({"name": name, "time": 1e3 * time, "batch": f"batch {batch:g}"})
    effects = []
    for at, name in enumerate(SWITCHES):
        cells = [name]
        for batch in batches:
            alone = tuple(place == at for place in range(3))
            others = tuple(place != at for place in range(3))
            cells += [
                f"{found[batch, (False,) * 3] / found[batch, alone]:.2f}",
                f"{found[batch, others] / found[batch, (True,) * 3]:.2f}",
            ]
        effects.append(cells)
    headings = ["", *(f"{when}, batch {batch:g}" for batch in batches for when in ("alone", "beside the others"))]
    whole = [found[batch, (False,) * 3] / found[batch, (True,) * 3] for batch in batches]
    return Figure(
        "All on and off combinations of the three optimisations",
        f"Together they make a step of {target} with {draft} "
        + " and ".join(
            f"{gain:.2f} times faster at batch {batch:g}" for gain, batch in zip(whole, batches, strict=True)
        )
        + ". What each gains alone and beside the others is in the table.",
        charts=(
            Chart(
                "factorial",
                f"A step of {target} with {draft}, k = {k:g}",
                pd.DataFrame(rows),
                {"name": "on", "time": "time [ms]", "batch": "batch"},
                "name",
                "time",
                (Layer("bar"),),
                color="batch",
            ),
        ),
        tables=(Table("Gain of each.", headings, effects, tuple(range(1, len(headings)))),),
    )


@figure("dataflow-elsewhere")
def elsewhere(
    systems: Sequence[str] = ("sn40l-16", "dgx-h100:engine=trtllm", "dgx-h200:engine=trtllm", "dgx-b200", "lpu-v1"),
    target: str = "llama-3.3-70b",
    draft: str = "llama-3.2-1b",
    drafted: Sequence[int] = (1, 2, 3, 5, 7, 9, 12),
    data: str = "HumanEval",
    prompt: float = 4096,
    output: float = 1024,
) -> Figure:
    """The same speculation on other machines, with what it costs.

    Parameters
    ----------
    systems : sequence of str
        With ``:key=value`` for plan or engine.
    target, draft : str
    drafted : sequence of int
        k to try.
    data : str
        Column of Table 1 whose acceptance applies at every k.
    prompt, output : float
        Tokens of a request; one user.
    """
    alpha = acceptance()[data]
    rows, table = [], []
    for on in systems:
        answers = {
            k: evaluate(asked(target, on, draft, float(k), alpha, prompt=prompt, output=output)) for k in drafted
        }
        gains = {k: speed_up(answer) for k, answer in answers.items()}
        name = on.split(":")[0]
        rows += [{"k": k, "gain": gain, "system": name} for k, gain in gains.items()]
        best = max(gains, key=lambda k: gains[k])
        plain = run(replace(answers[best].scenario, speculation=None))
        full = run(answers[best].scenario)
        table.append(
            [
                name,
                f"{best}",
                f"{gains[best]:.2f}",
                f"{1 / float(plain.metrics['tpot_s']):,.0f}",
                f"{1 / float(full.metrics['tpot_s']):,.0f}",
                *(
                    "not published" if value != value else f"{value:,.3g}"
                    for answer in (plain, full)
                    for value in (
                        float(answer.metrics["usd_per_mtok_output"]),
                        float(answer.metrics["joules_per_output_token"]),
                    )
                ),
            ]
        )
    spread = {row[0]: float(row[2]) for row in table}
    most, least = max(spread, key=lambda name: spread[name]), min(spread, key=lambda name: spread[name])
    return Figure(
        f"{target} with {draft} on other machines",
        f"At the acceptance of {data} (alpha {alpha:.2f}) speculation brings {spread[most]:.1f} times on {most} and "
        f"{spread[least]:.1f} on {least}: what a small draft costs beside its target decides.",
        charts=(
            Chart(
                "elsewhere",
                "Speed-up of a token against k, one user",
                pd.DataFrame(rows),
                {"k": "tokens drafted, k", "gain": "speed-up [1]", "system": "system"},
                "k",
                "gain",
                (Layer("line"), Layer("point")),
                color="system",
            ),
        ),
        tables=(
            Table(
                "The best k, and one user's speed, money and energy without and with the draft.",
                (
                    *("system", "best k", "speed-up", "tok/s alone", "tok/s drafted"),
                    *("USD/Mtok alone", "J/token alone", "USD/Mtok drafted", "J/token drafted"),
                ),
                table,
                tuple(range(1, 9)),
            ),
        ),
        notes=(
            "One user on a whole system: money and energy say how idle it is, not what a loaded one costs. Prices of "
            "SN40L and LPU are third-party estimates.",
            "The LPU's public time a layer (47 us, an estimate) stands in draft and target alike.",
        ),
    )


def length_variance(alpha: float, k: float) -> tuple[float, float]:
    """Return mean and variance of the tokens of a step at a constant acceptance."""
    chances = [alpha**accepted * (1 - alpha) for accepted in range(int(k))] + [alpha**k]
    mean = sum((at + 1) * chance for at, chance in enumerate(chances))
    return mean, sum((at + 1 - mean) ** 2 * chance for at, chance in enumerate(chances))


def slow_tpot(step: float, alpha: float, k: float, output: float, quantile: float = 2.326) -> float:
    """Return the time a token that 99 % of requests beat: a request needs a random number of steps.

    Notes
    -----
    By renewal theory a request of D tokens takes (D + o) / L steps on average with variance D s^2 / L^3, where L and
    s^2 are mean and variance of the tokens of a step, and o = (s^2 + L^2) / 2L - 1/2 the tokens by which the last step
    overshoots.
    """
    mean, variance = length_variance(alpha, k)
    overshoot = (variance + mean**2) / (2 * mean) - 0.5
    steps = (output + overshoot) / mean + quantile * math.sqrt(output * variance / mean**3)
    return step * steps / output


@figure("dataflow-best-k")
def best_k(
    on: str = "sn40l-16",
    target: str = "llama-3.3-70b",
    draft: str = "llama-3.2-1b",
    drafted: Sequence[int] = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16),
    output: float = 256,
    slo_ms: float = 3.0,
) -> Figure:
    """The choice of k under an objective of time per token, with acceptance that varies.

    Parameters
    ----------
    on : str
        System.
    target, draft : str
    drafted : sequence of int
        k to try.
    output : float
        Tokens of a request: the shorter, the wider its mean time a token scatters.
    slo_ms : float
        Objective of TPOT that 99 % of requests must meet [ms].
    """
    rows, table = [], []
    for data, alpha in acceptance().items():
        slow, means = {}, {}
        for k in drafted:
            answer = evaluate(asked(target, on, draft, float(k), alpha, prompt=4096, output=output))
            means[k] = float(answer.metrics["tpot_s"])
            step = means[k] * float(answer.speculation["tokens_per_step"])
            slow[k] = slow_tpot(step, alpha, float(k), output)
            for kind, value in (("mean", means[k]), ("99th percentile", slow[k])):
                rows.append({"k": k, "tpot": 1e3 * value, "kind of": kind, "data": data})
        meets = [k for k in drafted if 1e3 * slow[k] <= slo_ms]
        best, safe = min(means, key=lambda k: means[k]), min(slow, key=lambda k: slow[k])
        table.append(
            [
                *(data, f"{alpha:.2f}", f"{best}", f"{1e3 * means[best]:.2f}", f"{safe}", f"{1e3 * slow[safe]:.2f}"),
                f"{min(meets)} to {max(meets)}" if meets else "none",
            ]
        )
    return Figure(
        "Which k, when acceptance varies",
        f"On {on} the best k is "
        + ", ".join(f"{row[2]} on {row[0]}" for row in table)
        + f"; 99 % of requests of {output:g} tokens stay under {slo_ms:g} ms a token at k "
        + ", ".join(f"{row[6]} ({row[0]})" for row in table)
        + ".",
        charts=(
            Chart(
                "best-k",
                "Time per token against k",
                pd.DataFrame(rows),
                {"k": "tokens drafted, k", "tpot": "TPOT [ms]", "kind of": "of requests", "data": "data"},
                "k",
                "tpot",
                (Layer("line"), Layer("point")),
                color="data",
                facet="kind of",
            ),
        ),
        tables=(
            Table(
                "Best k by the mean and by the slow requests.",
                ("data", "alpha", "best k", "TPOT [ms]", "best k, p99", "TPOT p99 [ms]", f"k under {slo_ms:g} ms"),
                table,
                (1, 2, 3, 4, 5),
            ),
        ),
        notes=(
            "Acceptance is constant within a data set here, and differs between them: the scatter within one is what a "
            "geometric number of accepted tokens gives. Prompts scatter more than that.",
            "The slow requests are a normal approximation; against a simulation it is off by one step or less of 20.",
        ),
    )


@figure("dataflow-context")
def context_decay(
    systems: Sequence[str] = ("sn40l-16", "dgx-h100:engine=trtllm"),
    target: str = "llama-3.3-70b",
    draft: str = "llama-3.1-8b",
    k: float = 5,
    contexts: Sequence[float] = (4096, 32768, 126976),
    batches: Sequence[float] = (1, 2, 4, 8, 16, 32),
) -> Figure:
    """How the gain falls with the batch at long contexts.

    Parameters
    ----------
    systems : sequence of str
    target, draft : str
    k : float
    contexts : sequence of float
        Prompt tokens.
    batches : sequence of float
        Users at once.
    """
    alpha = acceptance("70B/8B")["HumanEval"]
    rows, cells = [], []
    for on, context in product(systems, contexts):
        line = [on.split(":")[0], f"{context:,.0f}"]
        for batch in batches:
            answer = evaluate(asked(target, on, draft, float(k), alpha, prompt=context, output=1024, concurrency=batch))
            # What waits for admission is no speed of a step.
            if float(answer.max_concurrency) < batch:
                line.append("-")
                continue
            gain = speed_up(answer)
            rows.append({"batch": batch, "gain": gain, "system": line[0], "context": f"{context / 1024:.0f}K"})
            line.append(f"{gain:.2f}")
        cells.append(line)
    return Figure(
        f"{target} with {draft}: batches at long contexts",
        "The draft's cache grows with batch and context while its weights do not, and verification pays for its "
        "tokens: the gain falls with both. In the empty cells the two caches do not fit.",
        charts=(
            Chart(
                "context-decay",
                f"Speed-up of a token, k = {k:g}",
                pd.DataFrame(rows),
                {"batch": "users at once", "gain": "speed-up [1]", "system": "system", "context": "prompt [tokens]"},
                "batch",
                "gain",
                (Layer("line"), Layer("point")),
                color="context",
                facet="system",
                log="x",
            ),
        ),
        tables=(
            Table(
                "Speed-up by users at once.",
                ("system", "prompt", *(f"{batch:g}" for batch in batches)),
                cells,
                tuple(range(1, 2 + len(batches))),
            ),
        ),
        notes=("Waiting for others' prefills is in both times, which pulls the ratio towards 1.",),
    )


@figure("dataflow-offloading-service")
def offloading_service(
    model: str = "8B",
    outputs: Sequence[float] = (64, 256, 1024),
    batches: Sequence[float] = (1, 2, 4, 8, 16, 32, 64),
    scheduled: float = 20,
) -> Figure:
    """ScheduleOffloading when requests come and go, with prefill on the same machine or elsewhere.

    Parameters
    ----------
    model : str
        As the paper names it.
    outputs : sequence of float
        Tokens of a request.
    batches : sequence of float
        Requests at once.
    scheduled : float
        Tokens that the host schedules at once where nothing disturbs it.
    """
    machine, rows, losses = sn40(), [], []
    for (place, events), output in product({"prefill elsewhere": 1.0, "prefill on the machine": 2.0}.items(), outputs):
        for batch in batches:
            # A request that ends makes room for one that joins; its prefill is one more break in the schedule.
            between = max(1.0, output / (batch * events))
            tokens = min(float(scheduled), between)
            gain = dataflow_fit.schedule_offloading(machine, model, float(batch), tokens)
            rows.append({"batch": batch, "gain": gain, "output": f"{output:g} tokens", "place": place})
            if batch == max(batches):
                losses.append(gain)
    return Figure(
        "ScheduleOffloading in a service",
        f"The host must have its turn whenever a request ends or joins. With {max(batches):g} requests at once the "
        f"gain of {model} falls to between {min(losses):.2f} and {max(losses):.2f}; prefill on other machines halves "
        "the breaks.",
        charts=(
            Chart(
                "offloading-service",
                "Gain of ScheduleOffloading with continuous batching",
                pd.DataFrame(rows),
                {"batch": "requests at once", "gain": "gain [1]", "output": "output", "place": "where prefill runs"},
                "batch",
                "gain",
                (Layer("line"), Layer("point")),
                color="output",
                facet="place",
                log="x",
            ),
        ),
        claims=(
            Claim(
                "ScheduleOffloading keeps its gain under continuous batching",
                "depends",
                f"on output tokens over requests at once: below {scheduled:g} steps between breaks it shrinks",
            ),
        ),
        notes=(
            "Breaks are taken as evenly spread, and the machine as waiting for the host at each; the paper measured "
            "fixed batches. Requests of equal length that start together would break less often.",
        ),
    )


@figure("dataflow-eager")
def eager(
    questions: Sequence[tuple[str, str]] = (
        ("mixtral-8x7b", "dgx-h100:tp=8"),
        ("gpt-oss-120b", "dgx-h100:tp=8"),
        ("deepseek-r1", "dgx-h200:tp=8,engine=sglang"),
    ),
    users: float = 16,
) -> Figure:
    """Experts on GPUs without CUDA graphs.

    Parameters
    ----------
    questions : sequence of pairs
        Model and system.
    users : float
        Users at once.
    """
    rows, table = [], []
    for model, on in questions:
        shares = []
        for name, changes in (("graphs", ()), ("no graphs", ("system.efficiency.eager=true",))):
            answer = evaluate(resolve(model, on, Options(concurrency=users, prompt=1024, output=256), changes))
            parts = {cause: 1e3 * float(answer.breakdown["decode"][cause]) for cause in CAUSES}
            shares.append((parts["collective"] / sum(parts.values()), sum(parts.values())))
            rows += [
                {"place": f"{model}, {name}", "cause": cause, "time": value} for cause, value in parts.items() if value
            ]
        table.append([model, on, f"{shares[0][0]:.0%}", f"{shares[1][0]:.0%}", f"{shares[1][1] / shares[0][1]:.2f}"])
    return Figure(
        "Experts without CUDA graphs",
        "Without graphs collectives take "
        + ", ".join(f"{row[3]} of TPOT for {row[0]} (with them {row[2]})" for row in table)
        + "; the paper quotes 68 % for experts on GPUs.",
        charts=(
            Chart(
                "eager",
                f"TPOT by cause, {users:g} users",
                pd.DataFrame(rows),
                {"place": "model", "cause": "cause", "time": "TPOT [ms]"},
                "time",
                "place",
                (Layer("bar"),),
                color="cause",
                stacked=True,
                across=True,
            ),
        ),
        tables=(
            Table(
                "Share of collectives.",
                ("model", "system", "with graphs", "without", "TPOT without over with"),
                table,
                (2, 3, 4),
            ),
        ),
        notes=(
            f"68 % is Jiang et al. 2024 as {PAPER} quotes it, for another machine and expert parallelism over nodes.",
            "Only what collectives lose without graphs is modelled, not the gaps between kernels: the loss is more.",
        ),
    )


@figure("dataflow-megakernel")
def megakernel(
    models: Sequence[str] = ("8B", "70B"),
    gaps: Sequence[float] = (1.0, 0.75, 0.5, 0.25, 0.0),
    overlaps: Sequence[float] = (0.0, 0.5, 1.0),
) -> Figure:
    """What a GPU would reach with megakernels: gaps between kernels and exposed collectives as sliders.

    Parameters
    ----------
    models : sequence of str
        As the paper names them.
    gaps : sequence of float
        Share of the time a layer that is left.
    overlaps : sequence of float
        Share of the collectives that is hidden.
    """
    gpu, rdu = dataflow_fit.h100(), sn40()
    rows, table = [], []
    for model in models:
        step = gpu.step(model)
        own, aim = float(step.time), rdu.time(model)
        for gap, hidden in product(gaps, overlaps):
            time = float(step.busy + step.host + gap * step.overhead + (1 - hidden) * step.collective)
            rows.append({"gap": gap, "rate": 1 / time, "hidden": f"{hidden:.0%} hidden", "model": model})
        rows += [{"gap": gap, "rate": 1 / aim, "hidden": "SN40-16", "model": model} for gap in gaps]
        bare = float(step.busy + step.host)
        software = (own - max(bare, aim)) / (own - aim)
        table.append([model, f"{1 / own:,.0f}", f"{1 / bare:,.0f}", f"{1 / aim:,.0f}", f"{min(1.0, software):.0%}"])
    return Figure(
        "GPUs with megakernels",
        "With no gap between kernels and every collective hidden, DGX H100 would decode "
        + ", ".join(f"{row[0]} at {row[2]} tok/s (now {row[1]}, SN40-16 {row[3]})" for row in table)
        + ": "
        + ", ".join(f"{row[4]} of the gap for {row[0]}" for row in table)
        + " is software.",
        charts=(
            Chart(
                "megakernel",
                "Tokens a second of one user on DGX H100",
                pd.DataFrame(rows),
                {
                    "gap": "share of the gaps that is left [1]",
                    "rate": "output [tok/s]",
                    "hidden": "collectives",
                    "model": "model",
                },
                "gap",
                "rate",
                (Layer("line"), Layer("point")),
                color="hidden",
                facet="model",
                zero=True,
            ),
        ),
        tables=(
            Table(
                "One user, tokens a second.",
                ("model", "DGX H100 now", "without gaps", "SN40-16", "share of the gap that is software"),
                table,
                (1, 2, 3, 4),
            ),
        ),
        notes=(
            "Now is H100 as the paper ran it (two numbers from Figure 1a). The floor is our kernels' traffic at their "
            "measured rates, so that a fused kernel that streams better would go further.",
        ),
    )


def best_drafted(alpha: float, cost: float, verify: float = 0.0, most: int = 64) -> int:
    """Return the whole k that makes speculation fastest.

    The condition for the best real k is transcendental (its solution is a Lambert W), so whole numbers are tried.

    Parameters
    ----------
    alpha : float
        Constant acceptance [1].
    cost : float
        Time of a draft step over that of the target [1].
    verify : float
        What each verified token adds to a step, over that of the target [1].
    most : int
        Largest k to try.
    """

    def speed(k: int) -> float:
        step = speculative.speculative_step(draft=cost, drafted=float(k), verify=1 + verify * k, host=0.0)
        length = speculative.accepted_length(acceptance=alpha, drafted=float(k))
        return float(speculative.speculative_speedup(length=length, plain=1.0, step=step))

    return max(range(most + 1), key=speed)


def break_even_alpha(k: float, cost: float, verify: float = 0.0, host: float = 0.0) -> float:
    """Return the constant acceptance from which k drafted tokens pay, NaN where they never do.

    Closed for one token (:func:`perfmodel.equations.speculative.break_even_acceptance`), a root for more.

    Parameters
    ----------
    k : float
        Tokens drafted a step [1].
    cost, verify, host : float
        Time of a draft step, what each verified token adds, and the host, over a step of the target [1].
    """
    step = float(speculative.speculative_step(draft=cost, drafted=k, verify=1 + verify * k, host=host))
    length = float(speculative.break_even_length(plain=1.0, step=step))
    return alpha_of_ratio(length / (k + 1), k) if length <= k + 1 else math.nan


@figure("dataflow-break-even")
def break_even(
    acceptances: Sequence[float] = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95),
    costs: Sequence[float] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8),
    verify: float = 0.01,
) -> Figure:
    """When speculation pays: break-even acceptance and best k over the cost of the draft.

    Parameters
    ----------
    acceptances : sequence of float
    costs : sequence of float
        Time of a draft step over that of the target.
    verify : float
        What each verified token adds to a step of the target.
    """
    best = [
        {"cost": cost, "k": best_drafted(alpha, cost, verify), "alpha": f"{alpha:g}"}
        for alpha in acceptances
        for cost in costs
    ]
    even = [
        {"cost": cost, "alpha": value, "k": f"{k}"}
        for k in (1, 3, 5, 9)
        for cost in costs
        if (value := break_even_alpha(float(k), cost, verify)) == value
    ]
    return Figure(
        "When speculation pays",
        f"One drafted token pays from an acceptance of the draft's relative cost and {verify:g} for verifying; more "
        "tokens need more, and the best k falls quickly with the cost.",
        charts=(
            Chart(
                "break-even",
                "Acceptance from which k drafted tokens pay",
                pd.DataFrame(even),
                {"cost": "draft step over target step [1]", "alpha": "acceptance, alpha [1]", "k": "k"},
                "cost",
                "alpha",
                (Layer("line"), Layer("point")),
                color="k",
                log="x",
            ),
            Chart(
                "best-k-by-cost",
                "Best k",
                pd.DataFrame(best),
                {"cost": "draft step over target step [1]", "k": "best k", "alpha": "alpha"},
                "cost",
                "k",
                (Layer("line"), Layer("point")),
                color="alpha",
                log="x",
            ),
        ),
    )
