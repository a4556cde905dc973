"""Users with sessions as a table: hit rates, times, money, the cliff, and what changes are worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from perfmodel.outputs.tables import plain, print_said, side_by_side, table_html
from perfmodel.planning.agents import Agents, AgentsBeside
from perfmodel.planning.agents_cost import OwningAgents
from perfmodel.planning.agents_simulate import AgentsSimulated
from perfmodel.specs.units import show


def _title(answers: Sequence[Agents]) -> str:
    one = answers[0]
    return f"{one.users:,.0f} users with sessions {one.session.name} on {one.scenario.model.name}"


def _names(answers: Sequence[Agents]) -> list[str]:
    return [
        f"{one.scenario.system.name}, TP {float(one.scenario.deployment.tp):g} DP {float(one.scenario.deployment.dp):g}"
        for one in answers
    ]


def _count(value: float) -> str:
    return (
        "never"
        if math.isinf(value)
        else "-"
        if math.isnan(value)
        else f"{value:,.0f}"
        if value >= 10
        else f"{value:.1f}"
    )


def _column(agents: Agents) -> dict[str, str]:
    """Return the cells of an answer by label."""
    answer, cliff = agents.answer, agents.cliff
    if answer is None or cliff is None:
        return {"no answer": agents.reason}
    rows = {"hit rate": f"{float(answer.hit_rate):.1%} of {answer.hit_ceiling:.1%} at the most"}
    if agents.tiers:
        rows |= {f"hit rate in {name}": f"{float(part):.1%}" for name, part in answer.hit_by_tier.items()}
    for label, value in (
        ("TTFT", answer.ttft),
        ("TTFT P50", answer.first_token.quantile(0.5)),
        ("TTFT P95", answer.first_token.quantile(0.95)),
        ("TTFT of a hit", answer.ttft_hit),
        ("TTFT of a miss", answer.ttft_miss),
        ("TPOT", answer.tpot),
        ("call", answer.call),
        ("task", answer.task),
    ):
        rows[label] = show(float(value), "s", 3)
    rows["calls of a task"] = f"{answer.calls_per_task:.1f}"
    rows["tasks an hour"] = _count(float(answer.tasks_per_hour))
    rows["sessions a chip"] = f"{agents.sessions_per_chip:.1f}"
    rows["prefill, share of time"] = f"{float(answer.engine_load):.0%}"
    for tier in agents.tiers:
        used, limit = float(answer.tier_bandwidth[tier.name]), float(tier.bandwidth)
        rows[f"loads from {tier.name}"] = f"{show(used, 'B/s', 3)} of {show(limit, 'B/s', 3)}"
        rows[f"loads from {tier.name} pay from"] = f"{_count(float(answer.crossover[tier.name]))} tokens"
    rows["USD an hour"] = f"{agents.usd_per_hour:,.2f}"
    rows["USD a task"] = f"{agents.usd_per_task:.3g}"
    rows["cliff, users"] = f"{_count(cliff.users)}{' (past it)' if agents.past_cliff else ''}"
    if cliff.users_cold < cliff.users:
        rows["cliff, users, cold start"] = _count(cliff.users_cold)
    rows["  away, sessions"] = _away(cliff.users, agents.users, float(agents.session.fan_out))
    rows["  away, cache a replica"] = _spare(cliff.pool, agents.pool)
    if answer.cold is not None:
        rows["hit rate, cold start"] = f"{float(answer.cold.hit_rate):.1%}"
        rows["TTFT, cold start"] = show(float(answer.cold.ttft), "s", 3)
    return rows


def _away(cliff: float, users: float, fan_out: float) -> str:
    return "never" if math.isinf(cliff) else f"{(cliff - users) * fan_out:+,.0f}"


def _spare(needed: float, pool: float) -> str:
    if math.isinf(needed):
        return "no size will do"
    return f"{(pool - needed) / 1e9:+,.1f} GB of {pool / 1e9:,.1f} GB"


def _rows(answers: Sequence[Agents]) -> list[tuple[str, list[str]]]:
    columns = [_column(one) for one in answers]
    labels = dict.fromkeys(label for column in columns for label in column)
    return [(label, [column.get(label, "-") for column in columns]) for label in labels]


def _worths(agents: Agents) -> list[tuple[str, list[str]]]:
    return [
        (
            worth.change,
            [
                f"{worth.hit_rate:.1%}",
                show(worth.ttft, "s", 3),
                show(worth.task, "s", 3),
                _count(worth.users),
                f"{worth.usd_per_task:.3g}",
            ],
        )
        for worth in agents.worths
    ]


def _said(answers: Sequence[Agents]) -> list[tuple[str, Sequence[str]]]:
    assumed = dict.fromkeys(line for one in answers for line in one.scenario.assumed)
    mind: dict[str, None] = {}
    for name, one in zip(_names(answers), answers, strict=True):
        lines = [*one.scenario.warnings, *one.warnings, *([one.reason] if one.reason else [])]
        mind |= dict.fromkeys(line if len(answers) == 1 else f"{name}: {line}" for line in lines)
    return [("assumed", list(assumed)), ("mind", list(mind))]


_WORTH = ("hit rate", "TTFT", "task", "cliff, users", "USD a task")


def print_agents(answers: Sequence[Agents], console: Any) -> None:
    """Print answers side by side, and of a single one what changes are worth.

    Parameters
    ----------
    answers : sequence of Agents
    console : rich.console.Console
    """
    if all(one.reason for one in answers):
        return
    side_by_side(_title(answers), _names(answers), _rows(answers), console)
    if len(answers) == 1 and answers[0].worths:
        console.print()
        side_by_side("with", _WORTH, _worths(answers[0]), console)
    print_said(_said(answers), console)


def agents_text(found: Agents) -> str:
    """Return an answer as plain text, or why there is none."""
    return found.reason or plain(lambda console: print_agents([found], console))


def agents_html(found: Agents) -> str:
    """Return an answer as HTML."""
    return table_html(_title([found]), _names([found]), _rows([found]), _said([found]))


def beside_text(found: AgentsBeside) -> str:
    """Return answers side by side as plain text."""
    return plain(lambda console: print_agents(found.answers, console))


def beside_html(found: AgentsBeside) -> str:
    """Return answers side by side as HTML."""
    return table_html(_title(found.answers), _names(found.answers), _rows(found.answers), _said(found.answers))


def print_simulated(simulated: AgentsSimulated, console: Any) -> None:
    """Print hit rates of a simulated cache beside those of the closed form.

    Parameters
    ----------
    simulated : AgentsSimulated
    console : rich.console.Console
    """
    if simulated.reason or simulated.closed.answer is None:
        return
    rows = [
        (
            f"hit rate in {name}",
            [
                f"{value:.1%}",
                f"{simulated.errors[name]:.1%}",
                f"{float(simulated.closed.answer.hit_by_tier[name]):.1%}",
                f"{simulated.differences()[name]:+.1%}",
            ],
        )
        for name, value in simulated.simulated.items()
    ]
    title = f"{_title([simulated.closed])}: {simulated.seeds} times {simulated.calls:,} calls"
    side_by_side(title, ("simulated", "standard error", "closed form", "difference"), rows, console)
    mind = (*simulated.closed.scenario.warnings, *simulated.closed.warnings)
    print_said([("assumed", [*simulated.closed.scenario.assumed, *simulated.assumed()]), ("mind", mind)], console)


def simulated_text(found: AgentsSimulated) -> str:
    """Return hit rates of a simulated cache as plain text, or why there are none."""
    return found.reason or plain(lambda console: print_simulated(found, console))


def print_cost(owning: OwningAgents, console: Any) -> None:
    """Print what a task costs on each system.

    Parameters
    ----------
    owning : OwningAgents
    console : rich.console.Console
    """
    if owning.reason:
        return
    answers = [one.answer for one in owning.systems]
    best = answers[0]
    console.print(f"{_names([best])[0]}: {best.usd_per_task:.3g} USD a task, {best.chips:,.0f} chips", soft_wrap=True)
    console.print()
    causes = dict.fromkeys(cause for one in owning.systems for cause in one.per_task)
    rows = [("USD a task", [f"{one.usd_per_task:.3g}" for one in answers])]
    rows += [
        (f"  {cause}", [f"{one.per_task[cause]:.3g}" if cause in one.per_task else "-" for one in owning.systems])
        for cause in causes
    ]
    ties = ["-" if math.isnan(one.tie_price) else f"{one.tie_price:,.0f} USD" for one in owning.systems]
    rows += [("system's price at a tie", ties), ("chips", [f"{one.chips:,.0f}" for one in answers])]
    told = ("hit rate", "TTFT", "TTFT P95", "TPOT", "task", "tasks an hour", "USD an hour", "cliff, users")
    rows += [(label, cells) for label, cells in _rows(answers) if label in told]
    side_by_side(_title(answers), _names(answers), rows, console)
    limits = [
        f"each system has the fewest replicas before the cliff, mean TPOT within {show(owning.tpot, 's', 3)}",
        "no range of cost: prices, prefill and hit rates are taken at their value",
    ]
    lost = [f"{name}: {why}" for name, why in owning.rejected.items()]
    (heading, assumed), *others = _said(answers)
    print_said([(heading, [*limits, *assumed]), *others, ("no answer", lost)], console)


def cost_text(owning: OwningAgents) -> str:
    """Return what a task costs as plain text, or why there is no answer."""
    return owning.reason or plain(lambda console: print_cost(owning, console))
