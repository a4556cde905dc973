"""What starts the engines of a plan: commands and files that are printed, and never run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfmodel import shapes
from perfmodel.entered import said, unmoved
from perfmodel.errors import UserError
from perfmodel.planning.launch import manifests
from perfmodel.planning.launch.commands import Command, as_yaml, command
from perfmodel.planning.launch.printed import role_from
from perfmodel.planning.launch.roles import Drafting, Role, Wanted, role_of
from perfmodel.serving.fit import fit
from perfmodel.shown import Shown
from perfmodel.specs.naming import read_engine
from perfmodel.specs.types import Scenario

#: How it can be printed.
FORMATS = ("shell", "kubernetes", "llm-d", "dynamo")


@dataclass(frozen=True, repr=False)
class Launch(Shown):
    """What starts a plan.

    Attributes
    ----------
    engine, release : str
    form : str
        One of ``shell``, ``kubernetes``, ``llm-d`` and ``dynamo``.
    commands : tuple of Command
        One a role.
    notes : tuple of str
        What is to be known of them.
    """

    engine: str
    release: str
    form: str
    commands: tuple[Command, ...]
    notes: tuple[str, ...]

    @property
    def unsaid(self) -> list[str]:
        """What the plan has and the engine cannot be told."""
        return list(dict.fromkeys(line for one in self.commands for line in one.unsaid))

    def text(self) -> str:
        """Return what is printed in its form: commands, or YAML; what is said of it stands in comments."""
        said = [f"# {line}" for line in (*(f"not said: {line}" for line in self.unsaid), *self.notes)]
        commands = list(self.commands)
        if self.form == "kubernetes":
            parts = [as_yaml(started) for started in manifests.kubernetes(self.engine, self.release, commands)]
            return "\n".join([*said, "---\n".join(parts)])
        if self.form == "llm-d":
            return "\n".join([*said, as_yaml(manifests.llm_d(self.engine, self.release, commands))])
        if self.form == "dynamo":
            return "\n".join([*said, as_yaml(manifests.dynamo(self.engine, commands))])
        lines = said
        for started in self.commands:
            chips = f"{started.role.ranks} chip{'' if started.role.ranks == 1 else 's'}"
            head = f"{started.role.name or 'engine'}: {started.role.workers} of them, {chips} each"
            lines.append(f"# {head}")
            for name, content in started.files.items():
                lines += [f"cat > {name} <<'EOF'", content.rstrip("\n"), "EOF"]
            lines.append(shlex.join(started.words))
        return "\n".join(lines) + "\n"

    def to_dict(self) -> shapes.Launch:
        """Return the documented JSON object."""
        return {
            "engine": self.engine,
            "release": self.release,
            "format": self.form,
            "roles": [
                {
                    "role": started.role.name or None,
                    "workers": started.role.workers,
                    "chips": started.role.ranks,
                    "command": list(started.words),
                    "files": dict(started.files),
                }
                for started in self.commands
            ],
            "text": self.text(),
            "not_said": self.unsaid,
            "notes": list(self.notes),
        }


def _launch(engine: str, release: str, form: str, roles: Sequence[Role], notes: Sequence[str]) -> Launch:
    if form not in FORMATS:
        raise UserError(f"--format {form}: expected one of {', '.join(FORMATS)}")
    made = [command(engine, release, role) for role in roles]
    said = list(dict.fromkeys([*notes, *(line for _, lines in made for line in lines)]))
    if len(roles) > 1 and form == "shell":
        said.append("two pools need a proxy in front that sends a request to both; llm-d and Dynamo bring one")
    if any(role.workers > 1 for role in roles) and form == "shell":
        said.append("workers beyond one are the same command on other chips and ports, behind a router")
    if form == "dynamo":
        said.append(f"images carry no tag: take the release of Dynamo whose {engine} is {release or 'yours'}")
    if form == "llm-d":
        said += [f"mount this as /etc/perfmodel/{name}: {one.config}" for one, _ in made for name in one.files]
    return Launch(engine, release, form, tuple(one for one, _ in made), tuple(said))


def of_scenarios(scenarios: Mapping[str, Scenario], wanted: Wanted, form: str = "shell") -> Launch:
    """Return what starts a model on a system, or on two pools.

    Parameters
    ----------
    scenarios : mapping of str to Scenario
        By the name of the pool, empty for one.
    wanted : Wanted
    form : str

    Returns
    -------
    Launch
    """
    roles, notes = [], []
    for name, scenario in scenarios.items():
        if not float(fit(scenario).cap) >= 1:
            raise UserError(
                f"launch: {scenario.model.name} does not fit {scenario.system.name} so; perfmodel fit says why"
            )
        role, lines = role_of(scenario, wanted, name)
        roles.append(role)
        notes += lines
        paths = unmoved(scenario, lambda asked: vars(role_of(asked, wanted)[0]))
        notes += [said(path, entered=False, why="no flag of the engine depends on it") for path in paths]
        if role.drafting is not None:
            notes.append("how many drafts are accepted changes no flag")
    first = next(iter(scenarios.values()))
    if len({asked.deployment.engine for asked in scenarios.values()}) > 1:
        raise UserError("launch: both pools run one engine; give --engine")
    named, kept = read_engine(first.deployment.engine), first.system.engine
    release = named.release or (kept.release if kept is not None else "")
    if not any(role.prefix_caching for role in roles):
        notes.append("the plan counts on no prefix hits, so that prefix caching is off; leave the flag out to have it")
    return _launch(named.name, release, form, roles, notes)


def of_plan(content: Mapping[str, Any], form: str = "shell") -> Launch:
    """Return what starts a saved plan.

    Parameters
    ----------
    content : mapping
        What the plan's file holds.
    form : str

    Returns
    -------
    Launch
    """
    from perfmodel.question import Options, resolve

    answer, question = content["answer"], content["question"]
    plan, drafted, draft = answer["plan"], answer.get("speculation"), question["options"].get("draft") or ""
    options = Options(
        engine=answer["engine"],
        precision=plan["precision"],
        kv_precision=plan["kv_precision"],
        tp=float(plan["tp"]),
        pp=float(plan["pp"]),
        ep=float(plan["ep"]),
        attention_dp=float(plan["attention_dp"]),
    )
    if drafted is not None:
        # How many are accepted changes no flag.
        options = replace(options, draft=draft or drafted["draft"], k=float(drafted["k"]), alpha=0.5)
    scenario = resolve(question["model"], answer["system"], options)
    role, notes = role_of(scenario, Wanted(question["model"], draft, answer["longest_request"]))
    role = replace(
        role,
        workers=int(answer["replicas"]),
        sequences=int(answer["batch_cap"] // float(plan["attention_dp"])),
        batched_tokens=int(answer["token_budget"]),
        prefix_caching=answer["prefix_hits"] > 0,
    )
    named = read_engine(answer["engine"])
    return _launch(named.name, named.release, form, [role], notes)


def of_arguments(engine: str, release: str, given: Mapping[str, Any], form: str = "shell") -> Launch:
    """Return what starts a server that printed its arguments.

    Parameters
    ----------
    engine, release : str
    given : mapping of str to Any
        Arguments by the engine's own names.
    form : str

    Returns
    -------
    Launch
    """
    role, notes = role_from(engine, given)
    return _launch(engine, release, form, [role], notes)


__all__ = ["FORMATS", "Command", "Drafting", "Launch", "Role", "Wanted", "of_arguments", "of_plan", "of_scenarios"]
