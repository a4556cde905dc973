"""Predictions in a few lines: the verdict, what decides, and what to mind most; the rest is a switch away."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

from perfmodel.outputs.tables import figure, money_figure, notes, plan_words, side_by_side, span
from perfmodel.prediction import Prediction
from perfmodel.question import distinct
from perfmodel.specs.catalog import IN_PLACE
from perfmodel.specs.units import show

#: What a caveat says where nobody has measured.
_UNMEASURED = re.compile("no calibration|not fitted|never|nobody|no measurement|far off|extrapolated")
#: Caveats that are printed; what else there is to mind is counted.
_MOST = 3
#: Lines that they may take.
_ROOM = 5


def _time(answer: Prediction, key: str) -> str:
    value = float(answer.metrics[key])
    return show(value, "s", 3) if value == value else "-"


def _with_range(answer: Prediction, key: str) -> str:
    """Return a time with its band."""
    ends = answer.band.get(key)
    return f"{_time(answer, key)} ({span(ends, 's')})" if ends else _time(answer, key)


def _cost(answer: Prediction) -> str:
    ends = answer.band.get("usd_per_mtok_blended")
    value = money_figure(float(answer.metrics["usd_per_mtok_blended"]))
    return f"{value} USD/Mtok" + (f" ({money_figure(ends['low'])}-{money_figure(ends['high'])})" if ends else "")


def _chips(answer: Prediction) -> str:
    return f"{float(answer.chips):,g} chip{'' if float(answer.chips) == 1 else 's'}"


def load_words(answer: Prediction) -> str:
    """Return how many requests of which lengths an answer is about."""
    load = answer.scenario.traffic
    if answer.one_pass:
        return f"{float(load.prompt):,.0f} tokens in, {float(load.concurrency):,.0f} at once"
    return f"{float(load.concurrency):,.0f} at once, {float(load.prompt):,.0f} tokens in, {float(load.output):,.0f} out"


def _least(answers: Sequence[Prediction], names: Sequence[str], key: str) -> tuple[int, str]:
    """Return which answer has the least of a metric, -1 where none has it, and whose ranges overlap with its own."""
    known = [at for at, answer in enumerate(answers) if float(answer.metrics[key]) == float(answer.metrics[key])]
    if not known:
        return -1, ""
    best = min(known, key=lambda at: float(answers[at].metrics[key]))
    high = answers[best].band.get(key, {}).get("high", float(answers[best].metrics[key]))
    ties = [
        names[at]
        for at in known
        if at != best and answers[at].band.get(key, {}).get("low", float(answers[at].metrics[key])) < high
    ]
    return best, f", a range that overlaps with {', '.join(ties)}" if ties else ""


def _limit(answer: Prediction) -> str:
    """Return where the largest part of a token's time goes, and how large it is."""
    phase, word = ("prefill", "TTFT") if answer.one_pass else ("decode", "TPOT")
    if phase not in answer.limited_by:
        return ""
    cause, parts = answer.limited_by[phase], answer.breakdown[phase]
    return f"; {cause} takes {float(parts[cause]) / sum(map(float, parts.values())):.0%} of {word}"


def verdict(answers: Sequence[Prediction]) -> str:
    """Return the answer in a sentence: the choice, its number with the range, the condition.

    Parameters
    ----------
    answers : sequence of Prediction

    Returns
    -------
    str
    """
    fits = [answer for answer in answers if not answer.reason]
    if not fits:
        return ""
    names = distinct([answer.scenario.system.name for answer in fits])
    if len(fits) == 1:
        (answer,) = fits
        what = "" if answer.one_pass else f"TPOT {_with_range(answer, 'tpot_s')}, "
        first = f"{names[0]} {plan_words(answer)} ({_chips(answer)}): {what}TTFT {_with_range(answer, 'ttft_s')}"
        return f"{first} at {load_words(answer)}{_limit(answer)}."
    key = "ttft_s" if all(answer.one_pass for answer in fits) else "tpot_s"
    word = "TTFT" if key == "ttft_s" else "TPOT"
    fast, ties = _least(fits, names, key)
    cheap, level = _least(fits, names, "usd_per_mtok_blended")
    said = f"{names[fast]} ({_chips(fits[fast])}) is fastest: {word} {_with_range(fits[fast], key)}"
    said += f" at {load_words(fits[fast])}{ties}"
    if cheap >= 0:
        said += f"; {names[cheap]} ({_chips(fits[cheap])}) is cheapest: {_cost(fits[cheap])}{level}"
    return f"{said}."


def _rows(answers: Sequence[Prediction]) -> list[tuple[str, list[str]]]:
    """Return what decides, a row each."""
    rows = [("plan", [f"{plan_words(answer)}, {answer.scenario.deployment.precision}" for answer in answers])]
    if len(answers) > 1:
        rows.append(("chips", [f"{float(answer.chips):,g}" for answer in answers]))
    for label, key in (("TTFT", "ttft_s"), ("TPOT", "tpot_s")):
        if key == "tpot_s" and all(answer.one_pass for answer in answers):
            continue
        rows.append((label, [_time(answer, key) for answer in answers]))
        rows.append(("  80 % band", [span(answer.band.get(key), "s") for answer in answers]))
    if any(answer.speculation for answer in answers):
        ups = [float(answer.speculation.get("speedup", float("nan"))) for answer in answers]
        rows.append(("speed-up", [figure(value, "1") for value in ups]))
    if any(answer.one_pass for answer in answers):
        for label, key in (("requests/s", "requests_per_s"), ("tokens/s", "tokens_per_s")):
            rows.append((label, [figure(float(answer.one_pass.get(key, float("nan"))), "1") for answer in answers]))
    if not all(answer.one_pass for answer in answers):
        rows.append(("output tok/s", [figure(float(answer.metrics["output_tokens_per_s"]), "1") for answer in answers]))
    rows.append(("$/Mtok blended", [money_figure(float(answer.metrics["usd_per_mtok_blended"])) for answer in answers]))
    bands = [answer.band.get("usd_per_mtok_blended") for answer in answers]
    money = [f"{money_figure(ends['low'])}-{money_figure(ends['high'])}" if ends else "-" for ends in bands]
    rows.append(("  80 % band", money))
    rows.append(("requests that fit", [f"{float(answer.max_concurrency):,.0f}" for answer in answers]))
    return rows


def _rank(caveat: str) -> tuple[int, float]:
    """Return the place of a caveat, the least first: what nobody measured, what has no number, then by its size.

    What is about power and the cost of an idle machine comes last.
    """
    moves = [abs(float(one)) for one in re.findall(r"[+-](\d+)%", caveat)]
    if moves:
        return 2, -max(moves)
    if caveat.startswith(("power", "$/Mtok")):
        return 3, 0.0
    return (0 if _UNMEASURED.search(caveat) else 1), 0.0


def caveats(answers: Sequence[Prediction]) -> tuple[list[str], int]:
    """Return what to mind most, and how many more lines are assumed or to be minded.

    Parameters
    ----------
    answers : sequence of Prediction

    Returns
    -------
    tuple of list of str and int
    """
    by_rank: dict[str, list[str]] = {}
    more = 0
    for heading, lines in notes(answers):
        if heading.startswith("no answer"):
            continue
        if heading.startswith("mind"):
            whose = heading.removeprefix("mind").removeprefix(", for ")
            for line in lines:
                by_rank.setdefault(line, []).extend([] if whose in ("", "all") else [whose])
        else:
            more += len(lines)
    ranked = sorted(by_rank, key=_rank)
    said = [f"{', '.join(by_rank[line])}: {line}" if by_rank[line] else line for line in ranked]
    return said[:_MOST], more + len(said[_MOST:])


def print_verdict(answers: Sequence[Prediction], console: Any) -> None:
    """Print the answer in a sentence, if there is one.

    Parameters
    ----------
    answers : sequence of Prediction
    console : rich.console.Console
    """
    from rich.text import Text

    if said := verdict(answers):
        console.print(Text(textwrap.fill(said, console.width), style="bold"))


def print_brief(answers: Sequence[Prediction], console: Any) -> None:
    """Print the verdict, what decides and what to mind most.

    Parameters
    ----------
    answers : sequence of Prediction
    console : rich.console.Console
    """
    from rich.text import Text

    fits = [answer for answer in answers if not answer.reason]
    print_verdict(answers, console)
    if fits:
        side_by_side("", [answer.scenario.system.name for answer in fits], _rows(fits), console, len(answers) > 1)
    for answer in answers:
        if answer.reason:
            line = f"{answer.scenario.system.name}: {answer.reason}"
            console.print(Text(textwrap.fill(line, console.width), style="red"))
    if not fits:
        return
    for line in dict.fromkeys(line for answer in fits for line in answer.assumed if line.endswith(IN_PLACE)):
        console.print(Text(textwrap.fill(line, console.width, initial_indent="- ", subsequent_indent="  ")))
    said, more = caveats(fits)
    room = _ROOM + (len(answers) == 1)
    for line in said:
        lines = textwrap.wrap(line, console.width, initial_indent="- ", subsequent_indent="  ")
        if len(lines) > room:
            more += 1
            continue
        room -= len(lines)
        console.print(Text("\n".join(lines)))
    if more:
        console.print(Text(f"-v: shares of time, power, and {more} lines more of what is assumed and to be minded"))
