"""Beyond the paper: when speculation pays, which k is best, and what it brings on other machines and long contexts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pandas as pd

from perfmodel.equations import speculative
from perfmodel.evidence.dataflow_fit import figures
from perfmodel.prediction import Prediction, evaluate, run
from perfmodel.question import Options, resolve
from perfmodel.reports.dataflow.systems import alpha_of_ratio
from perfmodel.reports.figures import Chart, Figure, Layer, Table, figure
from perfmodel.specs.types import Scenario


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


def _best_of(on: str, answers: Mapping[int, Prediction], gains: Mapping[int, float]) -> dict[str, Any]:
    """Return the best k of a system: what it gains, and one user's speed, money and energy without and with it."""
    best = max(gains, key=lambda k: gains[k])
    row: dict[str, Any] = {"system": on.split(":")[0], "k": best, "gain": gains[best]}
    with_draft = answers[best].scenario
    for which, scenario in (("alone", replace(with_draft, speculation=None)), ("drafted", with_draft)):
        metrics = run(scenario).metrics
        row[f"rate {which}"] = 1 / float(metrics["tpot_s"])
        row[f"usd {which}"] = float(metrics["usd_per_mtok_output"])
        row[f"joules {which}"] = float(metrics["joules_per_output_token"])
    return row


def _elsewhere_frames(
    systems: Sequence[str], target: str, draft: str, drafted: Sequence[int], alpha: float, **load: Any
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the gain against k on each system, and a row a system at its best k."""
    rows, best = [], []
    for on in systems:
        answers = {k: evaluate(asked(target, on, draft, float(k), alpha, **load)) for k in drafted}
        gains = {k: speed_up(answer) for k, answer in answers.items()}
        rows += [{"k": k, "gain": gain, "system": on.split(":")[0]} for k, gain in gains.items()]
        best.append(_best_of(on, answers, gains))
    return pd.DataFrame(rows), pd.DataFrame(best)


def _elsewhere_table(best: pd.DataFrame) -> Table:
    def known(value: float) -> str:
        return "not published" if value != value else f"{value:,.3g}"

    return Table(
        "The best k, and one user's speed, money and energy without and with the draft.",
        (
            *("system", "best k", "speed-up", "tok/s alone", "tok/s drafted"),
            *("USD/Mtok alone", "J/token alone", "USD/Mtok drafted", "J/token drafted"),
        ),
        [
            [
                row["system"],
                f"{row['k']}",
                f"{row['gain']:.2f}",
                *(f"{row[f'rate {which}']:,.0f}" for which in ("alone", "drafted")),
                *(known(row[f"{what} {which}"]) for which in ("alone", "drafted") for what in ("usd", "joules")),
            ]
            for row in best.to_dict("records")
        ],
        tuple(range(1, 9)),
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
    gains, best = _elsewhere_frames(systems, target, draft, drafted, alpha, prompt=prompt, output=output)
    most, least = (pick(best.to_dict("records"), key=lambda row: row["gain"]) for pick in (max, min))
    return Figure(
        f"{target} with {draft} on other machines",
        f"At the acceptance of {data} (alpha {alpha:.2f}) speculation brings {most['gain']:.1f} times on "
        f"{most['system']} and {least['gain']:.1f} on {least['system']}: what a small draft costs beside its target "
        "decides.",
        charts=(
            Chart(
                "elsewhere",
                "Speed-up of a token against k, one user",
                gains,
                {"k": "tokens drafted, k", "gain": "speed-up [1]", "system": "system"},
                "k",
                "gain",
                (Layer("line"), Layer("point")),
                color="system",
            ),
        ),
        tables=(_elsewhere_table(best),),
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
