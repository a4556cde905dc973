"""Options that the verbs share, and the ways an answer leaves."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from perfmodel.outputs.fit import FitAnswer
    from perfmodel.prediction import Prediction
    from perfmodel.question import Options
    from perfmodel.studies.size import Sized

Model = Annotated[str, typer.Argument(metavar="MODEL", help="Name, alias, Hugging Face id or path of an architecture.")]
SYSTEM_HELP = "System, if wanted with a plan: dgx-h100:tp=8,engine=vllm. Keys: plan tp pp ep dp engine precision kv."
OneSystem = Annotated[str, typer.Option("--on", metavar="SYSTEM[:KEY=VALUE,...]", help=SYSTEM_HELP)]
Systems = Annotated[list[str], typer.Option("--on", metavar="SYSTEM[:KEY=VALUE,...]", help=f"{SYSTEM_HELP} Repeat it.")]
Tp = Annotated[str | None, typer.Option("--tp", metavar="N", help="Tensor-parallel degree.")]
Pp = Annotated[str | None, typer.Option("--pp", metavar="N", help="Pipeline stages.")]
Ep = Annotated[str | None, typer.Option("--ep", metavar="N", help="Expert-parallel degree.")]
Dp = Annotated[str | None, typer.Option("--dp", metavar="N", help="Replicas.")]
Engine = Annotated[
    str | None,
    typer.Option("--engine", metavar="ENGINE", help="vllm, trtllm, sglang or native, with a release as in vllm-0.12."),
]
Precision = Annotated[
    str | None,
    typer.Option("--precision", metavar="P", help="Storage of the weights: bf16 fp16 fp8 int8 fp4 mxfp4 int4."),
]
KvPrecision = Annotated[str | None, typer.Option("--kv-precision", metavar="P", help="Storage of the KV cache.")]
Traffic = Annotated[
    str | None, typer.Option("--traffic", metavar="NAME", help="chat, code, rag, reasoning, agent, pd-1 ... pd-32.")
]
Prompt = Annotated[str | None, typer.Option("--prompt", metavar="P", help="Prompt tokens, with --output.")]
Output = Annotated[str | None, typer.Option("--output", metavar="D", help="Output tokens, with --prompt.")]
Concurrency = Annotated[
    str | None, typer.Option("--concurrency", metavar="N", help="Requests at once, all replicas together.")
]
Images = Annotated[
    str | None, typer.Option("--images", metavar="N", help="Images of a request; their tokens are added to the prompt.")
]
Draft = Annotated[
    str | None,
    typer.Option(
        "--draft", metavar="MODEL", help="Draft model of speculative decoding; eagle, mtp: one layer; ngram: look-up."
    ),
]
Drafted = Annotated[str | None, typer.Option("--k", metavar="N", help="Tokens drafted a step, with --draft.")]
Alpha = Annotated[
    str | None, typer.Option("--alpha", metavar="A", help="Chance that a drafted token is accepted, at every position.")
]
Ar = Annotated[
    str | None, typer.Option("--ar", metavar="A", help="Tokens of a step, the target's own included, over k + 1.")
]
Accept = Annotated[str | None, typer.Option("--accept", metavar="A1,A2,...", help="The chance position by position.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Vary an input: system.memory.hbm.bandwidth=+20%. Repeat it."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the documented JSON object.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV, one row an answer.")]


#: The options of a question, which `asks` gives to a verb.
OPTIONS: dict[str, Any] = {
    "tp": Tp,
    "pp": Pp,
    "ep": Ep,
    "dp": Dp,
    "engine": Engine,
    "precision": Precision,
    "kv_precision": KvPrecision,
    "traffic": Traffic,
    "prompt": Prompt,
    "output": Output,
    "concurrency": Concurrency,
    "images": Images,
    "draft": Draft,
    "k": Drafted,
    "alpha": Alpha,
    "ar": Ar,
    "accept": Accept,
}


def asks(verb: Callable[..., int]) -> Callable[..., int]:
    """Give a verb the options of a question in place of its parameter ``given``."""
    signature = inspect.signature(verb, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name == "given":
            parameters += [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
                for name, kind in OPTIONS.items()
            ]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def call(**arguments: Any) -> int:
        return verb(given=_read({name: arguments.pop(name) for name in OPTIONS}), **arguments)

    call.__name__, call.__doc__, call.__module__ = verb.__name__, verb.__doc__, verb.__module__
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _read(given: dict[str, str | None]) -> Options:
    """Return the options of a question, read by the types of the fields that they fill."""
    from perfmodel.question import FIELDS, Options, option

    read: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return Options(**{name: option(name, value) if name in FIELDS else value for name, value in read.items()})


def console() -> Any:
    """Return the terminal to print tables on; not wider than what reads well."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, soft_wrap=False)


def write_csv(answers: Sequence[Prediction | FitAnswer | Sized]) -> None:
    """Print answers as CSV: RFC 4180, ISO numbers."""
    write_rows([answer.row() for answer in answers])


def write_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Print rows of the same columns as CSV."""
    import csv

    from perfmodel.outputs.files import text_cell

    if not rows:
        return
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\r\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: text_cell(value) if isinstance(value, str) else value for key, value in row.items()})


def write_json(content: dict[str, Any]) -> None:
    """Print an object as JSON; there is no NaN in it."""
    import json

    print(json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False))


class progress:
    """A bar on stderr while something long goes on, nothing where it is short or nobody watches."""

    def __init__(self, what: str, total: int | None, least: int = 0) -> None:
        self.what, self.total, self.least = what, total, least
        self.bar: Any = None

    def __enter__(self) -> Callable[[int], Any]:
        if (self.total is not None and self.total < self.least) or not sys.stderr.isatty():
            return lambda _: None
        from rich.console import Console
        from rich.progress import Progress

        self.bar = Progress(console=Console(stderr=True), transient=True)
        self.bar.start()
        task = self.bar.add_task(self.what, total=self.total)
        return lambda done: self.bar.advance(task, done)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
