"""A report page: one HTML file that asks no host for anything, readable in light and dark.

Charts are Vega-Lite; the library stands in the page.  A content policy forbids every request, so that a page cannot ask
for anything even by mistake.
"""

from __future__ import annotations

import functools
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

#: Colours that keep apart in light and dark and for the colour-blind (Okabe and Ito).
COLOURS = {"blue": "#0072b2", "orange": "#d55e00", "green": "#009e73", "grey": "#8a8f98", "pink": "#cc79a7"}

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --paper: #ffffff; --card: #f5f7f9; --rule: #d5dae0;
  --accent: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --soft: #a6adb7; --paper: #14171b; --card: #1e2329; --rule: #363d46; --accent: #6cb8ea; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 84rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .6rem; letter-spacing: -.01em; }
h2 { font-size: 1.35rem; margin: 3rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1.12rem; margin: 2.2rem 0 .4rem; }
a { color: var(--accent); }
p { max-width: 46rem; margin: .4rem 0 1rem; }
p.answer { font-size: 1.05rem; border-left: 3px solid var(--accent); padding-left: .9rem; }
ul { max-width: 52rem; padding-left: 1.2rem; }
ul.notes { color: var(--soft); font-size: .95rem; }
nav ol { padding-left: 1.4rem; max-width: 60rem; }
nav li { margin: .25rem 0; }
nav span { color: var(--soft); }
p.lead { font-size: 1.1rem; color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11.5rem, 1fr)); gap: 1rem; margin: 1.5rem 0; }
.card { background: var(--card); border-radius: .6rem; padding: 1rem 1.1rem; }
.card b { display: block; font-size: 1.9rem; line-height: 1.15; font-variant-numeric: tabular-nums; }
.card span { display: block; color: var(--soft); font-size: .9rem; }
.card span.name { color: var(--ink); font-weight: 600; }
figure { margin: 1.5rem 0; min-width: 0; }
figcaption, caption { color: var(--soft); font-size: .95rem; text-align: left; max-width: 60rem; margin: .5rem 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: .5rem 2rem; }
.chart { width: 100%; color: var(--ink); min-height: 18rem; }
.chart svg { max-width: 100%; height: auto; }
.chart .vega-embed { width: 100%; }
.wide { overflow-x: auto; margin: 1.2rem 0 2rem; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; width: 100%; }
caption { caption-side: top; }
th, td { padding: .32rem .7rem; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: top; }
th { font-weight: 600; color: var(--soft); white-space: nowrap; border-bottom-width: 2px; }
td.n, th.n { text-align: right; white-space: nowrap; }
tr.l0 td:first-child, tr.l1 td:first-child, tr.l2 td:first-child { white-space: nowrap; }
tr.l0 td { font-weight: 600; border-top: 2px solid var(--rule); }
tr.l0 td:last-child, tr.l1 td:last-child, tr.l2 td:last-child { font-weight: 400; color: var(--soft);
  font-size: .85rem; white-space: nowrap; }
tr.l1 td:first-child { padding-left: 1.8rem; }
tr.l2 td:first-child { padding-left: 3rem; color: var(--soft); }
tbody tr:hover { background: var(--card); }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--rule); color: var(--soft); font-size: .9rem; }
code { font-size: .92em; }
#vg-tooltip-element.vg-tooltip { font: 14px/1.45 system-ui, sans-serif; background: var(--card); color: var(--ink);
  border: 1px solid var(--rule); max-width: 34rem; }
#vg-tooltip-element table tr td.key { color: var(--soft); border: 0; }
#vg-tooltip-element table tr td.value { border: 0; }
@media print { main { max-width: none; } .card { border: 1px solid var(--rule); } }
"""


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


_START = """
for (const holder of document.querySelectorAll(".chart")) {
  const spec = JSON.parse(document.getElementById(holder.dataset.spec).textContent);
  vegaEmbed(holder, spec, {renderer: "svg", actions: false, loader: {load: () => Promise.reject("offline")}})
    .catch((error) => { holder.textContent = "This chart could not be drawn: " + error; });
}
"""

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


@functools.cache
def _library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    import vl_convert

    script = str(vl_convert.javascript_bundle(_GLOBALS))
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


#: What stands above the licences.
_CREDIT = "Licences of the libraries that draw the charts of this page"


@functools.cache
def _licences() -> str:
    """Return the notices of the libraries that a page holds, which their licences ask to go with each copy."""
    return (Path(__file__).parent / "assets" / "licences.txt").read_text(encoding="utf-8")


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    caption: str = "",
    numbers: Sequence[int] = (),
    levels: Sequence[int] = (),
) -> str:
    """Return a table; columns in ``numbers`` stand to the right, rows of a level above 0 are indented by it."""
    if not rows:
        return ""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f'<{tag} class="n">{escape(cell)}</{tag}>' if at in numbers else f"<{tag}>{escape(cell)}</{tag}>"
            for at, cell in enumerate(row)
        )

    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    marks = [f' class="l{level}"' for level in levels] or [""] * len(rows)
    body = "\n".join(f"<tr{mark}>{cells('td', row)}</tr>" for mark, row in zip(marks, rows, strict=True))
    head = f"<thead><tr>{cells('th', headings)}</tr></thead>"
    return f'<div class="wide"><table>{said}{head}<tbody>\n{body}\n</tbody></table></div>'


def chart(spec: Mapping[str, Any], caption: str, name: str) -> str:
    """Return a figure of a Vega-Lite spec; ``name`` is unique in the page."""
    whole = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "config": config(),
        **({} if "facet" in spec else {"width": "container"}),
        **spec,
    }
    return (
        f'<figure><div class="chart" data-spec="{escape(name)}" role="img" aria-label="{escape(caption)}"></div>'
        f"<figcaption>{escape(caption)}</figcaption>"
        f'<script type="application/json" id="{escape(name)}">{json_text(whole)}</script></figure>'
    )


def charts(figures: Sequence[str]) -> str:
    """Return figures side by side where there is room."""
    return f'<div class="charts">{"".join(figures)}</div>'


def cards(entries: Sequence[tuple[str, str, str]]) -> str:
    """Return headline numbers: name, figure, and what it rests on."""
    inner = "".join(
        f'<div class="card"><span class="name">{escape(name)}</span><b>{escape(figure)}</b>'
        f"<span>{escape(rests)}</span></div>"
        for name, figure, rests in entries
    )
    return f'<div class="cards">{inner}</div>'


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph of plain text."""
    return f'<p class="{escape(kind)}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def listed(lines: Sequence[str], kind: str = "") -> str:
    """Return a list of plain text; nothing where it is empty."""
    inner = "".join(f"<li>{escape(line)}</li>" for line in lines)
    mark = f' class="{escape(kind)}"' if kind else ""
    return f"<ul{mark}>{inner}</ul>" if lines else ""


def contents(entries: Sequence[tuple[str, str, str]]) -> str:
    """Return links into the page: the name of an anchor, its heading and what stands there in short."""
    inner = "".join(
        f'<li><a href="#{escape(anchor)}">{escape(heading)}</a> <span>{escape(said)}</span></li>'
        for anchor, heading, said in entries
    )
    return f'<nav aria-label="Contents"><ol>{inner}</ol></nav>'


def block(heading: str, anchor: str, *parts: str) -> str:
    """Return a part of a section that can be linked to."""
    inner = "\n".join(part for part in parts if part)
    return f'<article id="{escape(anchor)}"><h3>{escape(heading)}</h3>\n{inner}</article>'


def section(heading: str, *parts: str) -> str:
    """Return a section with its heading; nothing where it has no content."""
    inner = "\n".join(part for part in parts if part)
    return f"<section><h2>{escape(heading)}</h2>\n{inner}</section>" if inner else ""


def page(title: str, lead: str, sections: Sequence[str], foot: Sequence[str]) -> str:
    """Return a whole page; ``sections`` are HTML, title, lead and foot plain text."""
    drawn = any('class="chart"' in part for part in sections)
    scripts = f"<script>{_library()}</script>\n<script>{_START}</script>" if drawn else ""
    credit = f"<details><summary>{_CREDIT}</summary><pre>{escape(_licences())}</pre></details>" if drawn else ""
    said = "".join(f"<p>{escape(line)}</p>" for line in foot)
    body = "\n".join(sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{paragraph(lead, "lead")}
{body}
<footer>{said}{credit}</footer>
</main>
{scripts}
</body>
</html>
"""
