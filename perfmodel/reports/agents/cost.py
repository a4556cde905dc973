"""What a task costs, agents beside chat on one fleet, and machines where most of a prompt is cached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from perfmodel.planning.agents import Agents, ask
from perfmodel.prediction import evaluate, run
from perfmodel.question import Options, resolve
from perfmodel.reports.agents.cliff import fleet
from perfmodel.reports.figures import Chart, Figure, Layer, Table, figure
from perfmodel.specs import catalog

#: Columns of the tables, and how their numbers are written.
_COST = {"share": "{:.0%}", "users": "{:,.0f}", "task": "{:,.0f}", "usd": "{:.3g}"}
_CHAT = dict.fromkeys(("users", "hits", "calls", "ttft", "prefill", "usd"), "{:.3g}")
_CACHED = {"hits": "{:.0%}", "ttft": "{:.3g}", "tpot_ms": "{:.3g}", "usd": "{:.3g}"}


def _asked(model: str, on: str, session: str, share: float) -> Agents:
    """Return the answer for a share of the users at the cliff."""
    one = fleet(model, on, session)
    return ask(one.scenario, catalog.load_session(session), max(1.0, share * one.cliff()), worth=False)


@figure("agents-cost")
def cost(
    model: str, systems: Sequence[str], session: str = "coding-agent", shares: Sequence[float] = (0.25, 0.5, 0.9, 1.5)
) -> Figure:
    """USD a task on each system, at shares of the users that its cache holds."""
    rows: list[dict[str, Any]] = []
    for on in systems:
        for share in shares:
            answer = _asked(model, on, session, share)
            if answer.answer is not None:
                rows.append(
                    {
                        "system": answer.scenario.system.name,
                        "share": share,
                        "usd": answer.usd_per_task,
                        "task": float(answer.answer.task),
                        "users": answer.users,
                    }
                )
    frame = pd.DataFrame(rows)
    before = max(share for share in shares if share < 1)
    cheapest = min((row for row in rows if row["share"] == before), key=lambda row: float(row["usd"]))
    return Figure(
        "Cost of a task",
        f"A task of {session} costs least on {cheapest['system']}: {cheapest['usd']:.3g} USD at "
        f"{cheapest['share']:.0%} of the users that its cache holds. Past the cliff tasks take longer, and the same "
        "hour does no more of them.",
        (
            Chart(
                "agents-cost",
                "USD a task against the users, as a share of those at the cliff",
                frame[["system", "share", "usd"]],
                {"system": "system", "share": "share of the users at the cliff", "usd": "USD a task"},
                "share",
                "usd",
                (Layer("line"), Layer("point")),
                "system",
                log="y",
            ),
        ),
        tables=(
            Table(
                "Users, time and cost of a task",
                ("system", "share", "users", "task [s]", "USD a task"),
                [[row["system"], *(form.format(row[key]) for key, form in _COST.items())] for row in rows],
                numbers=(1, 2, 3, 4),
            ),
        ),
    )


@figure("agents-chat")
def chat(
    model: str, on: str, sessions: Sequence[str] = ("coding-agent", "swe-bench", "multi-turn-chat", "deep-research")
) -> Figure:
    """What one fleet does for agents and for people who chat, each just before its cliff."""
    rows: list[dict[str, Any]] = []
    for session in sessions:
        task = _asked(model, on, session, 0.9)
        answer = task.answer
        if answer is None:
            continue
        rows.append(
            {
                "session": session,
                "users": task.users / task.chips,
                "hits": float(answer.hit_rate),
                "calls": float(answer.call_rate) / task.chips,
                "ttft": float(answer.ttft),
                "usd": task.usd_per_task,
                "prefill": float(answer.engine_load),
            }
        )
    frame = pd.DataFrame(rows)
    least, most = (end(rows, key=lambda row: float(row["users"])) for end in (min, max))
    return Figure(
        "Agents against chat",
        f"On the same machines a chip holds {most['users']:.3g} users of {most['session']} and {least['users']:.3g} of "
        f"{least['session']} before the hit rate falls.",
        (
            Chart(
                "agents-chat",
                "Users of a chip at nine tenths of the cliff",
                frame[["session", "users"]],
                {"session": "session", "users": "users a chip"},
                "session",
                "users",
                (Layer("bar"),),
            ),
        ),
        tables=(
            Table(
                "At nine tenths of the cliff",
                ("session", "users a chip", "hit rate", "calls/s a chip", "TTFT [s]", "prefill share", "USD a task"),
                [[row["session"], *(form.format(row[key]) for key, form in _CHAT.items())] for row in rows],
                numbers=(1, 2, 3, 4, 5, 6),
            ),
        ),
    )


def _cached_calls(
    model: str, systems: Sequence[str], prompt: float, output: float, hits: Sequence[float], concurrency: float
) -> Iterator[dict[str, Any]]:
    """Give times and cost of a call for each machine that the model fits and each cached share of its prompt."""
    asked = Options(prompt=prompt, output=output, concurrency=concurrency)
    for on in systems:
        for share in hits:
            scenario = resolve(model, on, asked, [f"traffic.prefix_hits={share}"])
            if not run(scenario).fits:
                continue
            answer = evaluate(scenario, ("ttft_s", "tpot_s", "tokens_per_s_per_chip", "usd_per_mtok_blended")).metrics
            yield {
                "system": scenario.system.name,
                "hits": share,
                "ttft": float(answer["ttft_s"]),
                "tpot_ms": 1e3 * float(answer["tpot_s"]),
                "usd": float(answer["usd_per_mtok_blended"]) * (prompt + output) / 1e6,
            }


@figure("agents-cached")
def cached(
    model: str,
    systems: Sequence[str],
    prompt: float = 30000.0,
    output: float = 300.0,
    hits: Sequence[float] = (0.0, 0.5, 0.8, 0.95),
    concurrency: float = 4.0,
) -> Figure:
    """Machines of every kind as more of a prompt is cached: time to first token, speed and cost of output."""
    rows = list(_cached_calls(model, systems, prompt, output, hits, concurrency))
    frame = pd.DataFrame(rows)
    ends = frame[frame["hits"].isin([min(hits), max(hits)])].pivot_table(
        index="system", columns="hits", values=["ttft", "usd"]
    )
    gains = {name: float(row[("usd", min(hits))] / row[("usd", max(hits))]) for name, row in ends.iterrows()}
    said = ", ".join(f"{name} {gain:.2g} times" for name, gain in sorted(gains.items(), key=lambda item: -item[1]))
    labels = {"system": "system", "hits": "share of the prompt that is cached", "ttft": "TTFT [s]", "usd": "USD a call"}
    return Figure(
        "Where most of a prompt is cached",
        f"With {max(hits):.0%} of {prompt:,.0f} prompt tokens cached a call is cheaper: {said}. What is left is "
        "decoding over a long context, where the bandwidth and the size of the memory count and not the arithmetic.",
        (
            Chart(
                "agents-cached-ttft",
                "TTFT",
                frame[["system", "hits", "ttft"]],
                labels,
                "hits",
                "ttft",
                (Layer("line"),),
                "system",
                log="y",
            ),
            Chart(
                "agents-cached-usd",
                "Cost of a call",
                frame[["system", "hits", "usd"]],
                labels,
                "hits",
                "usd",
                (Layer("line"),),
                "system",
                log="y",
            ),
        ),
        tables=(
            Table(
                f"{concurrency:g} calls at a time",
                ("system", "cached", "TTFT [s]", "TPOT [ms]", "USD a call"),
                [[row["system"], *(form.format(row[key]) for key, form in _CACHED.items())] for row in rows],
                numbers=(1, 2, 3, 4),
            ),
        ),
    )
