"""``perfmodel completion``: what a shell offers for a half-written word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Annotated, Any

import typer

from perfmodel.cli import OK
from perfmodel.errors import UserError

#: What a shell is told: it asks ``perfmodel completion words`` for the words that can stand at the cursor.
SCRIPTS = {
    "bash": """\
_perfmodel() {
    local line=${COMP_LINE:0:COMP_POINT} words typed before
    read -ra words <<< "$line"
    [[ $line == *" " ]] && words+=("")
    typed=${words[-1]}
    before=${typed%"${COMP_WORDS[COMP_CWORD]}"}
    mapfile -t COMPREPLY < <(perfmodel completion words -- "${words[@]:1}" 2>/dev/null)
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -o default -F _perfmodel perfmodel
""",
    "zsh": """\
#compdef perfmodel
_perfmodel() {
    local -a offered
    offered=("${(@f)$(perfmodel completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n $offered[1] ]]; then
        compadd -S '' -- $offered
    else
        _files
    fi
}
compdef _perfmodel perfmodel
""",
    "fish": """\
function __perfmodel
    set -l words (commandline -opc) (commandline -ct)
    perfmodel completion words -- $words[2..-1] 2>/dev/null
end
complete -c perfmodel -a '(__perfmodel)'
""",
}
#: Kind of the specs that a parameter names.
_SPECS = {
    **{"model": "model", "models": "model", "draft": "model", "on": "system", "systems": "system"},
    **{"prefill_on": "system", "traffic": "traffic", "sessions": "session"},
}
#: Parameters that a path of an input begins.
_PATHS = {"changes": "=", "axis": "=", "for_": ""}
Words = Annotated[
    list[str] | None, typer.Argument(metavar="[WORD...]", help="After 'words': the command so far, for a script.")
]


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")], words: Words = None
) -> int:
    """What a shell needs to complete verbs, options, models, systems and paths.

    Example: eval "$(perfmodel completion bash)"
    """
    if shell == "words":
        print("\n".join(offered(words or [""])))
    elif shell in SCRIPTS:
        print(SCRIPTS[shell], end="")
    else:
        raise UserError(f"completion {shell}: expected one of {', '.join(SCRIPTS)}")
    return OK


def _names(kind: str) -> list[str]:
    from perfmodel.specs import catalog

    return catalog.stems(kind)


def _inputs(words: Sequence[str]) -> list[str]:
    """Return the paths of the inputs of a question, or of an example where it does not say enough yet."""
    from perfmodel.question import Options, resolve
    from perfmodel.specs.paths import quantities

    model = next((word for word in words[1:] if word in _names("model")), "llama-3.1-8b")
    on = next((after for word, after in pairwise(words) if word == "--on"), "dgx-h100")
    try:
        scenario = resolve(model, on, Options())
    except UserError:
        scenario = resolve("llama-3.1-8b", "dgx-h100", Options())
    return [path for path, *_ in quantities(scenario)]


def _values(parameter: Any, words: Sequence[str]) -> list[str]:
    """Return what can stand for a parameter."""
    from perfmodel.specs.types import PRECISION_BYTES

    if parameter.name in _SPECS:
        return _names(_SPECS[parameter.name])
    if parameter.name in _PATHS:
        return [f"{path}{_PATHS[parameter.name]}" for path in _inputs(words)]
    if parameter.name == "metric":
        from perfmodel.prediction import METRICS

        return list(METRICS)
    if parameter.name in ("precision", "kv_precision"):
        return list(PRECISION_BYTES)
    return list(SCRIPTS) if parameter.name == "shell" else []


def _at(words: Sequence[str]) -> list[str]:
    """Return all that can stand in place of the last of some words."""
    from perfmodel.cli.app import VERBS, command

    if len(words) == 1:
        return [*VERBS, "--help", "--version"]
    if words[0] not in VERBS:
        return []
    verb = command((words[0],)).commands[words[0]]
    before, at = list(words[1:-1]), 1
    if hasattr(verb, "commands"):
        if not before:
            return list(verb.commands)
        if before[0] not in verb.commands:
            return []
        verb, before, at = verb.commands[before[0]], before[1:], 2
    options = {name: each for each in verb.params for name in each.opts if each.param_type_name == "option"}
    places, waits = [each for each in verb.params if each.param_type_name == "argument"], None
    for word in before:
        if waits is not None:
            waits = None
        elif word in options:
            waits = None if options[word].is_flag else options[word]
        elif places and places[0].nargs == 1:
            places.pop(0)
    if waits is not None:
        return _values(waits, words)
    if words[-1].startswith("-") or not places:
        return [name for name, each in options.items() if name.startswith("--") and not each.hidden] + ["--help"]
    return _values(places[0], words[at:])


def offered(words: Sequence[str]) -> Iterable[str]:
    """Return the words that can stand in place of the last one.

    Parameters
    ----------
    words : sequence of str
        Of the command line after the program, the last one half written.

    Returns
    -------
    sequence of str
    """
    return sorted(dict.fromkeys(word for word in _at(words) if word.startswith(words[-1])))
