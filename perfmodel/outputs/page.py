"""A report page: one HTML file that asks no host for anything, readable in light and dark.

Charts are Vega-Lite; the library stands in the page.  A content policy forbids every request, so that a page cannot ask
for anything even by mistake.
"""

from __future__ import annotations

import functools
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Colours that keep apart in light and dark and for the colour-blind (Okabe and Ito).
COLOURS = {"blue": "#0072b2", "orange": "#d55e00", "green": "#009e73", "grey": "#8a8f98", "pink": "#cc79a7"}


def config(ink: str = "currentColor", background: str | None = None) -> dict[str, Any]:
    """Return how charts look; on a page, text and rules take the page's own colour, whichever it is."""
    text = {"labelColor": ink, "titleColor": ink}
    return {
        "background": background,
        "font": "system-ui, -apple-system, Segoe UI, Roboto, Noto Sans, DejaVu Sans, sans-serif",
        "view": {"stroke": None},
        "axis": {
            **text,
            "tickColor": ink,
            "domainColor": ink,
            "gridColor": ink,
            "gridOpacity": 0.12,
            "labelFontSize": 13,
            "titleFontSize": 13,
            "titleFontWeight": "normal",
            "titlePadding": 8,
        },
        "legend": {**text, "labelFontSize": 13, "titleFontSize": 13, "orient": "bottom"},
        "title": {"color": ink, "fontSize": 15, "anchor": "start", "fontWeight": 600, "offset": 10},
        "header": {**text, "labelFontSize": 13},
    }


#: What the charts need of the library.
_GLOBALS = "window.vegaEmbed = vegaEmbed;"

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; img-src data:"


def escape(text: Any) -> str:
    """Return text that HTML shows as it stands."""
    return html.escape(str(text), quote=True)


def json_text(content: Any) -> str:
    """Return JSON that can stand inside a script element."""
    text = json.dumps(content, allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("\u2028", "\\u2028")


@dataclass(frozen=True)
class Fold:
    """A closed part of a page.

    Attributes
    ----------
    anchor, heading, finding : str
        What a link names, and what is read while it is closed.
    body : str
        HTML.
    """

    anchor: str
    heading: str
    finding: str
    body: str


@dataclass(frozen=True)
class Group:
    """Closed parts under one heading, with what they have in common."""

    heading: str
    folds: Sequence[Fold]
    text: str = ""


@dataclass(frozen=True)
class Opening:
    """The first screen of a page.

    Attributes
    ----------
    title, question, verdict : str
        Plain text; the verdict has its range.
    beside, hero : str
        HTML: what is compared, and the one chart that answers the question.
    """

    title: str
    question: str
    verdict: str
    beside: str = ""
    hero: str = ""


@functools.cache
def _library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    import vl_convert

    script = str(vl_convert.javascript_bundle(_GLOBALS))
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


#: What stands above the licences.
_CREDIT = "Licences of the libraries that draw the charts of this page"


@functools.cache
def _asset(name: str) -> str:
    """Return a file that stands in a page: style, script, or the notices that go with each copy of the libraries."""
    return (Path(__file__).parent / "assets" / name).read_text(encoding="utf-8")


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    caption: str = "",
    numbers: Sequence[int] = (),
    levels: Sequence[int] = (),
) -> str:
    """Return a table; columns in ``numbers`` stand to the right, rows of a level above 0 are indented by it."""
    marks = [f' class="l{level}"' for level in levels] or [""] * len(rows)
    body = [
        f"<tr{mark}>{''.join(_cell('td', cell, at in numbers) for at, cell in enumerate(row))}</tr>"
        for mark, row in zip(marks, rows, strict=True)
    ]
    return _framed(headings, body, caption, numbers)


def verdicts(headings: Sequence[str], rows: Sequence[Sequence[str]], at: int) -> str:
    """Return a table whose rows can be filtered by the verdict in column ``at``, which is a class too."""
    body = []
    for row in rows:
        cells = [
            f'<td class="{escape(cell)}">{escape(cell)}</td>' if place == at else _cell("td", cell)
            for place, cell in enumerate(row)
        ]
        body.append(f'<tr data-verdict="{escape(row[at])}">{"".join(cells)}</tr>')
    return _framed(headings, body, "", ())


def verdict_filter(counts: Mapping[str, int]) -> str:
    """Return buttons that count verdicts and show those of one."""
    buttons = [
        f'<button type="button" class="{escape(name)}" data-verdict="{escape(name)}" aria-pressed="false">'
        f"<span>{count} {escape(name)}</span></button>"
        for name, count in {"all": sum(counts.values()), **counts}.items()
    ]
    return f'<div class="verdicts" role="group" aria-label="Claims by verdict">{"".join(buttons)}</div>'


def _cell(tag: str, text: str, number: bool = False) -> str:
    mark = ' class="n"' if number else ""
    scope = ' scope="col"' if tag == "th" else ""
    return f"<{tag}{mark}{scope}>{escape(text)}</{tag}>"


def _framed(headings: Sequence[str], body: Sequence[str], caption: str, numbers: Sequence[int]) -> str:
    if not body:
        return ""
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = "".join(_cell("th" if text else "td", text, at in numbers) for at, text in enumerate(headings))
    lines = "\n".join(body)
    return (
        f'<div class="wide" tabindex="0"><table>{said}<thead><tr>{head}</tr></thead>'
        f"<tbody>\n{lines}\n</tbody></table></div>"
    )


def chart(spec: Mapping[str, Any], finding: str, caption: str, name: str, tools: str = "", level: int = 4) -> str:
    """Return a figure of a Vega-Lite spec under what it shows, a heading; ``name`` is unique in the page."""
    whole = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "config": config(),
        **({} if "facet" in spec else {"width": "container"}),
        **{key: value for key, value in spec.items() if key != "title"},
    }
    return (
        f"<figure><h{level}>{escape(finding)}</h{level}>"
        f'<div class="chart" data-spec="{escape(name)}" role="img" aria-label="{escape(f"{finding} {caption}")}"></div>'
        f"<figcaption>{escape(caption)}</figcaption>{tools}"
        f'<script type="application/json" id="{escape(name)}">{json_text(whole)}</script></figure>'
    )


def tools(files: Mapping[str, str], command: str) -> str:
    """Return what can be had of a chart: its numbers as a table, its files by what they are, and what makes it."""
    links = "".join(f'<a href="{escape(path)}" download>{escape(kind)}</a>' for kind, path in files.items())
    return (
        f'<div class="tools"><details class="numbers"><summary>Table</summary></details>{links}'
        f"<code>{escape(command)}</code></div>"
    )


def charts(figures: Sequence[str]) -> str:
    """Return figures side by side where there is room; nothing where there are none."""
    return "" if not figures else f'<div class="charts">{"".join(figures)}</div>'


def cards(entries: Sequence[tuple[str, str, str]]) -> str:
    """Return headline numbers: name, figure, and what it rests on."""
    inner = "".join(
        f'<div class="card"><span class="name">{escape(name)}</span><b>{escape(figure)}</b>'
        f"<span>{escape(rests)}</span></div>"
        for name, figure, rests in entries
    )
    return f'<div class="cards">{inner}</div>'


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph of plain text; nothing where there is none."""
    if not text:
        return ""
    return f'<p class="{escape(kind)}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def listed(lines: Sequence[str], kind: str = "") -> str:
    """Return a list of plain text; nothing where it is empty."""
    inner = "".join(f"<li>{escape(line)}</li>" for line in lines)
    mark = f' class="{escape(kind)}"' if kind else ""
    return f"<ul{mark}>{inner}</ul>" if lines else ""


def _contents(groups: Sequence[Group]) -> str:
    """Return links to every closed part, which stay while the page is read."""
    items = []
    for group in groups:
        links = "".join(f'<li><a href="#{escape(fold.anchor)}">{escape(fold.heading)}</a></li>' for fold in group.folds)
        items.append(f"<li>{escape(group.heading)}<ol>{links}</ol></li>")
    every = '<button type="button" data-open="all">Open all</button>'
    return (
        '<nav class="contents" aria-label="Contents"><details open><summary>Contents</summary>'
        f"<ol>{''.join(items)}</ol>{every}</details></nav>"
    )


def _group(group: Group) -> str:
    folds = "\n".join(
        f'<details class="fold" id="{escape(fold.anchor)}"><summary><h3>{escape(fold.heading)}</h3>'
        f"{paragraph(fold.finding)}</summary>\n{fold.body}</details>"
        for fold in group.folds
    )
    return f"<section><h2>{escape(group.heading)}</h2>\n{paragraph(group.text, 'said')}{folds}</section>"


def _first(opening: Opening) -> str:
    return (
        f"{paragraph(opening.title, 'title')}<h1>{escape(opening.question)}</h1>\n"
        f'<div class="opening"><div>{paragraph(opening.verdict, "verdict")}{opening.beside}</div>'
        f"<div>{opening.hero}</div></div>"
    )


def page(opening: Opening, groups: Sequence[Group], foot: Sequence[str]) -> str:
    """Return a whole page: its first screen, and parts under a list of contents."""
    groups = [group for group in groups if group.folds]
    body = _first(opening) + "\n".join(_group(group) for group in groups)
    drawn = 'class="chart"' in body
    library = f"<script>{_library()}</script>\n" if drawn else ""
    notices = escape(_asset("licences.txt"))
    credit = f"<details><summary>{_CREDIT}</summary><pre>{notices}</pre></details>" if drawn else ""
    said = "".join(f"<p>{escape(line)}</p>" for line in foot)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(opening.title)}</title>
<style>{_asset("page.css")}</style>
</head>
<body>
<div class="frame">
{_contents(groups)}
<main>
{body}
<footer>{said}{credit}</footer>
</main>
</div>
{library}<script>{_asset("page.js")}</script>
</body>
</html>
"""
