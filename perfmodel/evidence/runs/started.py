"""From a file to what starts it again: a saved plan, or the log of a server that printed its arguments."""

from __future__ import annotations

from pathlib import Path

from perfmodel.errors import UserError
from perfmodel.evidence.runs import document as files
from perfmodel.evidence.runs.document import Record
from perfmodel.evidence.runs.logged import arguments, release_of
from perfmodel.planning.launch import Launch, of_arguments, of_plan

#: What a saved plan must say to be started.
_PLANNED = (
    *("question.model", "question.options", "answer.system", "answer.engine", "answer.replicas", "answer.batch_cap"),
    *("answer.token_budget", "answer.longest_request", "answer.prefix_hits"),
    *(f"answer.plan.{name}" for name in ("tp", "pp", "ep", "attention_dp", "precision", "kv_precision")),
)


def launch_file(path: Path, form: str = "shell") -> Launch:
    """Return what starts a saved plan, or a server as it was when it wrote a log.

    Parameters
    ----------
    path : Path
    form : str
        As it is to be printed.

    Returns
    -------
    Launch

    Raises
    ------
    UserError
        Where the file is neither.
    """
    document = files.read(path)
    if "perfmodel_plan" in document.keys:
        content = document.objects[0]
        record = Record(document, "plan", content)
        if lost := next((name for name in _PLANNED if record.find(name) is None), ""):
            raise UserError(f"{path}: no field '{lost}'; perfmodel size ... --save {path.name} writes a plan")
        return of_plan(content, form)
    engine, given = arguments(document.text, document.name)
    if not engine:
        raise UserError(
            f"{path}: neither a saved plan nor a log with 'non-default args' of vLLM or 'server_args' of SGLang"
        )
    release = release_of(engine, document.text)
    if engine == "sglang" and not release:
        # What it prints of itself names no release; the argument came with 0.5.23.
        release = "0.5.23" if "attn_dp_size" in given else "0.5.16"
    return of_arguments(engine, release, given, form)
