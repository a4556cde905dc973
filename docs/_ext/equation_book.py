"""The equation book: every registered equation with its LaTeX, units, source, and where it is used.

The formula is printed from a trace, in the author's own term order, by the printer of ``explain --latex``.  Where an
equation is used is read off the source, and off the ledgers of a sample of predictions.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpydoc.docscrape import FunctionDoc
from sphinx.application import Sphinx

import perfmodel
import perfmodel.equations
from perfmodel.compilers.explain import LATEX, latex_text
from perfmodel.equation import REGISTRY, Equation
from perfmodel.prediction import traced
from perfmodel.question import Options, resolve
from perfmodel.trace import Ledger, Node

#: Questions that between them take every kind of machine, of layer, of engine, of draft and of ownership.
SAMPLE: tuple[tuple[str, str, dict[str, Any], tuple[str, ...]], ...] = (
    ("llama-3.1-70b", "dgx-h100", {"concurrency": 32.0}, ()),
    ("llama-3.1-70b", "dgx-h100:engine=trtllm", {"precision": "fp8"}, ("economics.ownership=owned",)),
    ("llama-3.1-70b", "dgx-h200:engine=sglang", {"traffic": "rag"}, ("economics.ownership=rented",)),
    ("llama-3.1-405b", "dgx-h100:tp=8,pp=2", {}, ("system.efficiency.eager=true",)),
    ("gpt-oss-120b", "mi355x-8", {}, ()),
    ("llama-3.1-70b", "tpu-v6e", {}, ()),
    ("deepseek-v3", "dgx-h200:ep=8", {"precision": "fp8"}, ()),
    ("deepseek-v3.2", "dgx-b200", {"precision": "fp8", "kv_precision": "fp8"}, ()),
    ("llama-4-scout", "dgx-h200", {"precision": "fp8"}, ()),
    ("qwen3-next-80b-a3b", "dgx-h200", {}, ()),
    ("nemotron-h-56b", "dgx-h200", {}, ()),
    ("jamba-v0.1", "dgx-h200", {}, ()),
    ("llama-3.1-70b", "dgx-h100", {"draft": "llama-3.2-1b", "k": 5.0, "alpha": 0.8}, ()),
    ("llama-3.1-70b", "dgx-h100", {"draft": "eagle", "k": 3.0, "accept": "0.8,0.7,0.6"}, ()),
    ("llama-3.1-70b", "sn40l-16", {}, ()),
    ("llama-3.1-8b", "sn40l-8", {"concurrency": 8.0}, ("system.efficiency.batch_streaming=false",)),
    ("llama-3.1-70b", "lpu-v1", {"concurrency": 16.0}, ()),
    ("llama-3.1-70b", "lpu-v1", {"draft": "llama-3.2-1b", "k": 5.0, "ar": 0.8}, ()),
    ("mixtral-8x7b", "lpu-v1", {}, ("system.efficiency.beat=fixed", "system.efficiency.decode_first=false")),
)

_HEAD = """\
# Equation book

{count} equations, one Python function each, in `perfmodel/equations/`. This page and those below it are made from the
registry, the source and the ledgers of {sample} predictions, whenever the documentation is built.

The formula stands in its author's own order, with the parameters of the function as names. *Called by* lists the
functions of perfmodel that use it. *Ledger* lists where its line stands in `perfmodel explain`, the workbook and the
what-if page: the scopes by kind of machine, such as `decode`, `prefill` (down, out) for the operators *down* and *out*
of either.

| subject | equations | in a ledger | elsewhere: `fit`, `--rate`, `size`, reports | called by nothing |
|---|---|---|---|---|
{rows}

What nothing calls is there for Python, as in `perfmodel.equations.metrics.prefill_share(...)`: no result of perfmodel
rests on it.

```{{toctree}}
:maxdepth: 2

{pages}
```
"""


def register() -> None:
    """Import every subject: some are imported only by what needs them."""
    for module in pkgutil.iter_modules(perfmodel.equations.__path__):
        importlib.import_module(f"perfmodel.equations.{module.name}")


def formula(equation: Equation) -> str:
    """Return the right-hand side as LaTeX, over the parameters."""
    ledger = Ledger()
    function = getattr(importlib.import_module(equation.function.__module__), equation.name)
    # Any numbers will do that are apart from each other and between 0 and 1: what is printed is the expression.
    function(**{name: ledger.input(name, 1 / (at + 2)) for at, name in enumerate(equation.parameters)})

    def name(node: Node) -> str | None:
        if node.kind == "argument":
            return f"\\text{{{latex_text(node.label)}}}"
        return f"{{{node.line.symbol}}}" if node.line is not None else None

    text = LATEX.write(ledger.lines[-1].formula, name)
    return re.sub(r"(?<!right)\)", r"\\right)", re.sub(r"(?<!left)\(", r"\\left(", text))


def callers() -> dict[str, dict[str, set[str]]]:
    """Return the modules and functions that call each equation."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    root = Path(perfmodel.__file__).parent
    for file in sorted(root.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if "from perfmodel.equations import" not in text:
            continue
        tree = ast.parse(text)
        subjects = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "perfmodel.equations"
            for alias in node.names
        }
        module = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")

        def visit(node: ast.AST, place: str, subjects: set[str] = subjects, module: str = module) -> None:
            for child in ast.iter_child_nodes(node):
                if (
                    isinstance(child, ast.Attribute)
                    and isinstance(child.value, ast.Name)
                    and child.value.id in subjects
                    and child.attr in REGISTRY
                ):
                    found[child.attr][module].add(place)
                named = isinstance(child, ast.FunctionDef | ast.ClassDef)
                visit(child, f"{place}.{child.name}".lstrip(".") if named else place)

        visit(tree, "")
    return found


def ledgers() -> dict[str, dict[str, set[str]]]:
    """Return the scopes of each kind of machine in which each equation leaves a line."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for model, system, options, changes in SAMPLE:
        scenario = resolve(model, system, Options(**options), list(changes))
        for line in traced(scenario)[0].lines:
            scope, _, name = line.name.rpartition(".")
            found[name][scenario.system.kind].add(scope)
    return found


def _linked(source: str) -> str:
    source = re.sub(r"doi:([^\s,;]+)", r"[doi:\1](<https://doi.org/\1>)", source)
    return re.sub(r"arXiv:(\d+\.\d+)", r"[arXiv:\1](https://arxiv.org/abs/\1)", source)


def _with_unit(words: list[str]) -> tuple[str, str]:
    """Return the text of a parameter and its unit, which stands last in brackets."""
    text, _, unit = " ".join(words).rstrip(".").rpartition("[")
    return text.strip(), unit.rstrip("]")


def _prose(lines: list[str]) -> str:
    return re.sub(r"\.\. math:: (.*)", r"As published: {math}`\1`", "\n".join(lines))


def _scopes(kinds: dict[str, set[str]]) -> str:
    """Return scopes by kind of machine; those that hold the same parts share an entry."""
    parts = []
    for kind, scopes in kinds.items():
        inner: dict[str, set[str]] = defaultdict(set)
        for scope in scopes - {""}:
            outer, _, last = scope.rpartition(".")
            inner[outer or last] |= {last} if outer else set()
        alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for outer in sorted(inner):
            alike[tuple(sorted(inner[outer]))].append(outer)
        said = [
            ", ".join(f"`{outer}`" for outer in outers) + (f" ({', '.join(within)})" if within else "")
            for within, outers in alike.items()
        ]
        parts.append(f"{kind}: {'; '.join(said) or 'outside all scopes'}")
    return "\n: ".join(parts)


def entry(equation: Equation, called: dict[str, set[str]], kinds: dict[str, set[str]]) -> str:
    """Return the section of one equation."""
    doc = FunctionDoc(equation.function)
    rows = []
    for parameter in doc["Parameters"]:
        text, unit = _with_unit(parameter.desc)
        rows += [f"| `{name.strip()}` | {unit} | {text} |" for name in parameter.name.split(",")]
    result, _ = _with_unit(doc["Returns"][0].desc)
    rows.append(f"| result | {equation.unit} | {result} |")
    by = ", ".join(f"`{module}.{place}`" for module, places in called.items() for place in sorted(places))
    used = [f"Called by\n: {by}" if by else "Called by\n: nothing in perfmodel; it is there for Python."]
    if kinds:
        used.append(f"Ledger\n: {_scopes(kinds)}")
    elif by:
        used.append("Ledger\n: none of the sampled predictions")
    parts = [
        f"(equation-{equation.name})=\n## {equation.name}",
        " ".join(doc["Summary"]),
        _prose(doc["Extended Summary"]),
        f"```{{math}}\n{equation.symbol} = {formula(equation)}\n```",
        "| parameter | unit | |\n|---|---|---|\n" + "\n".join(rows),
        _prose(doc["Notes"]),
        f"Source\n: {_linked(equation.source)}",
        *used,
    ]
    return "\n\n".join(part for part in parts if part)


def pages() -> Iterator[tuple[str, str]]:
    """Give the name and the text of every page."""
    register()
    called, kinds = callers(), ledgers()
    rows, names = [], []
    for subject in sorted({equation.subject for equation in REGISTRY.values()}):
        mine = [equation for equation in REGISTRY.values() if equation.subject == subject]
        module = importlib.import_module(f"perfmodel.equations.{subject}")
        head = f"# {subject}\n\n{(module.__doc__ or '').strip()}"
        yield (
            f"equations/{subject}",
            "\n\n".join([head, *(entry(one, called[one.name], kinds[one.name]) for one in mine)]),
        )
        led = sum(bool(kinds[one.name]) for one in mine)
        idle = sum(not called[one.name] for one in mine)
        rows.append(
            f"| [{subject}](equations/{subject}.md) | {len(mine)} | {led} | {len(mine) - led - idle} | {idle} |"
        )
        names.append(f"equations/{subject}")
    yield (
        "equations",
        _HEAD.format(count=len(REGISTRY), sample=len(SAMPLE), rows="\n".join(rows), pages="\n".join(names)),
    )


def write(app: Sphinx) -> None:
    """Write ``generated/equations.md`` and a page a subject."""
    folder = Path(app.srcdir) / "generated"
    (folder / "equations").mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (folder / f"{name}.md").write_text(text + "\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx looks for pages."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
