"""Several traffics on one fleet: how they are written, and what they are together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from perfmodel.errors import UserError
from perfmodel.options import Limits, options_of
from perfmodel.planning.checked import Sure
from perfmodel.planning.load import Sized
from perfmodel.planning.requests import Stream
from perfmodel.planning.search import Demand, Search
from perfmodel.planning.verify import check, spread
from perfmodel.question import Options, resolve
from perfmodel.question.reading import read_options
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.objectives import Objectives
from perfmodel.serving.traffic import lengths_of
from perfmodel.specs.types import Model, Scenario

#: What says that a traffic is one of several, and at which rate.
AT = "@"
#: Chances at the ends of an 80 % band.
_ENDS = (0.1, 0.9)
#: Standard deviations to which the chance of meeting the objectives is looked for, and steps of that search.
_FAR, _STEPS = 2.5, 4


@dataclass(frozen=True)
class Part:
    """A traffic as it was written: its name or file, requests a second, and objectives of its own."""

    name: str
    rate: float
    objectives: Mapping[tuple[str, str], float]


def parts_of(text: str, common: Objectives) -> list[Part]:
    """Read a mix of traffics.

    Parameters
    ----------
    text : str
        ``chat@40:ttft_p99=1s,tpot_p99=50ms,rag@10:ttft_p99=5s``: a rate each, and objectives where they are its own.
    common : Objectives
        Of every traffic that has no own ones of these names.
    """
    groups: list[list[str]] = []
    for piece in text.split(","):
        if AT in piece:
            groups.append([piece])
        elif groups and "=" in piece:
            groups[-1].append(piece)
        else:
            raise UserError(f"--traffic '{piece}': in a mix each traffic has its rate, as chat@40")
    found = [_part(group, common) for group in groups]
    names = [part.name for part in found]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise UserError(f"--traffic {twice} is given twice: add up its rates")
    if len(found) < 2:
        raise UserError(f"--traffic {text}: a mix has two traffics or more; of one give --traffic {names[0]} --rate")
    for key in {key for part in found for key in part.objectives}:
        if key[0] == "itl":
            raise UserError("a mix has no ITL by traffic: the gaps of all share the steps; give TPOT")
        if missing := [part.name for part in found if key not in part.objectives]:
            name = "_".join(key)
            raise UserError(f"--traffic {missing[0]}: has no {name} beside the others: add :{name}=TIME, loose or not")
    if not found[0].objectives:
        raise UserError(
            "a mix needs an objective, as --ttft-p99 2s for all or --traffic chat@40:ttft_p99=1s,tpot_p99=50ms for one"
        )
    return found


def _part(group: Sequence[str], common: Objectives) -> Part:
    head, _, own = group[0].partition(":") if ":" in group[0].rpartition(AT)[2] else (group[0], "", "")
    name, _, rate = head.rpartition(AT)
    try:
        per_second = float(rate.strip().removesuffix("/s"))
    except ValueError:
        per_second = math.nan
    if not (per_second > 0 and math.isfinite(per_second)) or not name:
        raise UserError(f"--traffic '{head}': expected NAME@RATE with requests a second, as chat@40")
    given: dict[str, str] = {}
    for entry in [*([own] if own else []), *group[1:]]:
        key, _, value = entry.partition("=")
        key = key.strip().replace("-", "_")
        if key not in options_of(Limits):
            raise UserError(f"--traffic {name}: '{key}' is no objective: ttft_p99, tpot_p99, latency_mean, ...")
        given[key] = value
    limits = dict(common.limits)
    for key, limit in read_options(Limits, given).items():
        time, what = key.split("_")
        limits[time, what] = limit
    return Part(name.strip(), per_second, limits)


@dataclass(frozen=True)
class Mix:
    """Traffics that share a fleet.

    Attributes
    ----------
    streams : tuple of Stream
    """

    streams: tuple[Stream, ...]

    @property
    def rate(self) -> float:
        """Requests of all of them [1/s]."""
        return sum(stream.rate for stream in self.streams)

    @property
    def name(self) -> str:
        """The traffics with their rates, in words."""
        return " + ".join(f"{stream.name}{AT}{stream.rate:g}/s" for stream in self.streams)

    @property
    def objectives(self) -> Objectives:
        """Return what all requests together meet if every traffic meets its own: the loosest limits.

        No more than 1 % of each traffic beyond its limit is no more than 1 % of all beyond the largest one.
        """
        keys = self.streams[0].limits
        return Objectives({key: max(stream.limits[key] for stream in self.streams) for key in keys})

    @property
    def lengths(self) -> Lengths:
        """The lengths of requests as they come."""
        parts = [(stream.lengths, stream.rate / self.rate) for stream in self.streams]
        return Lengths(
            np.concatenate([lengths.prompt for lengths, _ in parts]),
            np.concatenate([lengths.output for lengths, _ in parts]),
            np.concatenate([lengths.weight * share for lengths, share in parts]),
        )

    def laid(self, scenario: Scenario) -> Scenario:
        """Return a question with the means of the mix for its traffic.

        Parameters
        ----------
        scenario : Scenario
        """
        lengths = self.lengths
        traffic = replace(
            scenario.traffic,
            name=self.name,
            lengths=self.name,
            prompt=lengths.mean(lengths.prompt),
            output=lengths.mean(lengths.output),
            arrival_scv=sum(stream.rate * stream.scv for stream in self.streams) / self.rate,
            provenance={},
        )
        # What was changed of traffics is in their lengths and arrivals.
        changed = tuple(one for one in scenario.changed if not one[0].startswith("traffic."))
        return replace(scenario, traffic=traffic, changed=changed)


def mix_of(model: str | Model, on: str, parts: Sequence[Part], options: Options, changes: Sequence[str]) -> Mix:
    """Return the traffics that were written.

    Parameters
    ----------
    model, on, options, changes
        The question.
    parts : sequence of Part
    """
    streams = []
    for part in parts:
        traffic = resolve(model, on, replace(options, traffic=part.name), changes).traffic
        streams.append(
            Stream(part.name, part.rate, float(traffic.arrival_scv), lengths_of(traffic), dict(part.objectives))
        )
    return Mix(tuple(streams))


def sure_of(answer: Sized, mix: Mix, demand: Demand, most: float) -> Sure | None:
    """Return what the spread of the prediction does to the answer of a mix, by simulation.

    Parameters
    ----------
    answer : Sized
    mix : Mix
    demand : Demand
    most : float
        Chips that are looked at.
    """
    sigma = spread(answer.scenario)
    if not sigma > 0:
        return None
    alone = replace(answer.scenario, deployment=replace(answer.scenario.deployment, dp=1.0))

    def chips(confidence: float) -> float:
        asked = replace(demand, confidence=confidence, growth=1.0)
        found = Search(mix.lengths, asked, most, streams=mix.streams).best([alone], fixed=True)
        return math.inf if found is None or found.checked is None else found.chips

    low, high = -_FAR, _FAR
    for _ in range(_STEPS):
        middle = (low + high) / 2
        met = check(answer, factor=math.exp(sigma * middle), streams=mix.streams).met
        low, high = (middle, high) if met else (low, middle)
    return Sure(chips(_ENDS[0]), chips(_ENDS[1]), NormalDist().cdf((low + high) / 2))
