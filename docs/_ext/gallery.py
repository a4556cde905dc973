"""The gallery: every file of ``docs/gallery`` is run and shown with its source, its words and its chart; notebooks.

An example has a docstring (a title, an empty line, a few sentences).  It may print, and leaves an Altair chart in the
variable ``chart`` or a frame or text in ``table``.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import runpy
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

_HEAD = """\
# Gallery

Short programs that answer a question each. They lie in `docs/gallery`, every one is run by a test, and the pictures and
figures here were made while this page was built.
"""

_NOTEBOOKS = """\
## Notebooks

Longer walks, with text, tables and charts, in `notebooks/`. They come without outputs and compute all that they show:
`pip install -c constraints.txt jupyterlab`, then `jupyter lab notebooks`.
"""


def example(file: Path, pictures: Path) -> str:
    """Run an example and return its section of the page; a chart is drawn into the folder of pictures."""
    words, _, rest = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or file.stem).partition("\n")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        left = runpy.run_path(str(file), run_name="__main__")
    parts = [f"({file.stem})=", f"## {words.rstrip('.')}", rest.strip()]
    if "chart" in left:
        left["chart"].save(str(pictures / f"{file.stem}.svg"))
        parts.append(f"![{words.rstrip('.')}](gallery/{file.stem}.svg)")
    if hasattr(table := left.get("table"), "to_html"):
        table.columns.name = table.columns.name or table.index.name
        table.index.name = None
        parts.append(f"```{{raw}} html\n{table.to_html(border=0, classes='docutils')}\n```")
    elif table is not None:
        print(table, file=printed)
    if printed.getvalue():
        parts.append(f"```text\n{printed.getvalue().rstrip()}\n```")
    parts.append(
        f"```{{literalinclude}} ../gallery/{file.name}\n:language: python\n:caption: docs/gallery/{file.name}\n```"
    )
    return "\n\n".join(part for part in parts if part)


def notebook(file: Path) -> str:
    """Return the title of a notebook, to be downloaded, and its first paragraph."""
    first = "".join(json.loads(file.read_text(encoding="utf-8"))["cells"][0]["source"])
    title, said, *_ = first.removeprefix("# ").split("\n\n")
    return f"{{download}}`{title} <../../notebooks/{file.name}>`\n: {said}"


def write(app: Sphinx) -> None:
    """Write ``generated/gallery.md``."""
    pictures = Path(app.srcdir) / "generated" / "gallery"
    pictures.mkdir(parents=True, exist_ok=True)
    parts = [_HEAD, *(example(file, pictures) for file in sorted((Path(app.srcdir) / "gallery").glob("*.py")))]
    parts += [_NOTEBOOKS, *map(notebook, sorted((Path(app.srcdir).parent / "notebooks").glob("*.ipynb")))]
    pictures.with_suffix(".md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the page before Sphinx looks for pages."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
