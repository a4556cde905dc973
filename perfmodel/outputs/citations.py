"""The sources behind an answer: of every number that moves it and of every equation that it went through."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from perfmodel.prediction import traced
from perfmodel.results import results
from perfmodel.specs import catalog
from perfmodel.specs.paths import provenance_of
from perfmodel.specs.types import Scenario


@dataclass(frozen=True)
class Cited:
    """What an answer rests on.

    Attributes
    ----------
    sources : dict of str to list of str
        Of each source the inputs that come from it.
    equations : dict of str to list of str
        Of each origin of an equation, as its docstring has it, the equations.
    """

    sources: dict[str, list[str]]
    equations: dict[str, list[str]]


def cited(scenarios: Iterable[Scenario]) -> Cited:
    """Return what the answers to some scenarios rest on; each system, model and engine is traced once."""
    sources: dict[str, list[str]] = {}
    equations: dict[str, list[str]] = {}
    each = {
        (one.system.name, one.model.name, one.deployment.engine, one.speculation and one.speculation.name): one
        for one in scenarios
    }
    for scenario in each.values():
        ledger, answer = traced(scenario)
        found = list(results(answer).values())
        for path in ledger.reached(found):
            source = provenance_of(scenario, path).source
            if source and path not in sources.setdefault(source, []):
                sources[source].append(path)
        for line in ledger.lines:
            name = line.name.rpartition(".")[2]
            if name not in equations.setdefault(line.source, []):
                equations[line.source].append(name)
    return Cited(sources, equations)


def bibtex(key: str, entry: dict[str, Any]) -> str:
    """Return a source as an entry of BibTeX."""

    def said(text: object) -> str:
        return re.sub(r"([&%$#_{}])", r"\\\1", str(text))

    fields = {"title": "{" + said(entry.get("title", key)) + "}"}
    if entry.get("url"):
        fields["howpublished"] = rf"\url{{{entry['url']}}}"
    if entry.get("doi"):
        fields["doi"] = str(entry["doi"])
    if year := re.search(r"\d{4}", str(entry.get("date", ""))):
        fields["year"] = year[0]
    if entry.get("note"):
        fields["note"] = said(entry["note"])
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    return f"@misc{{{key},\n{lines}\n}}"


def text(cited: Cited) -> str:
    """Return what an answer rests on: BibTeX, and as comments what each source gave and where equations come from."""
    if not cited.sources:
        return "% nothing to cite: no question was asked\n"
    known = catalog.load_sources()
    parts = ["% Sources of the numbers behind this answer."]
    for key, paths in cited.sources.items():
        more = f" and {len(paths) - 4} more" if len(paths) > 4 else ""
        said = f"% {', '.join(paths[:4])}{more}"
        if key in known or key.startswith("http"):
            entry = known.get(key, {"title": key, "url": key})
            name = key if key in known else re.sub(r"\W+", "-", key.partition("://")[2]).strip("-")
            parts.append(f"{said}\n{bibtex(name, entry)}")
        else:
            parts.append(f"{said}: {key}")
    parts.append("% Where its equations come from.")
    parts += [f"% {', '.join(names)}: {source}" for source, names in cited.equations.items()]
    return "\n\n".join(parts[: -len(cited.equations)]) + "\n" + "\n".join(parts[-len(cited.equations) :]) + "\n"
