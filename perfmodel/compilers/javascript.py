"""Traced equations as JavaScript."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from perfmodel.compilers.formula import Language, steps
from perfmodel.trace import Ledger, Node

#: The named operations; NaN travels through all of them.
PRELUDE = """\
const pm = {
  snap: (x) => Math.min(0.5, 1e-9 * Math.max(1, Math.abs(x))),
  floor: (x) => Math.floor(x + pm.snap(x)),
  ceil_div: (a, b) => -pm.floor(-(a / b)),
  interpolate: (x, knots) => {
    if (Number.isNaN(x)) return NaN;
    let i = 1;
    while (i < knots.length - 1 && x >= knots[i][0]) i++;
    const [x0, y0] = knots[i - 1], [x1, y1] = knots[i];
    return y0 + (y1 - y0) / (x1 - x0) * (Math.min(Math.max(x, x0), x1) - x0);
  },
  switch_at: (x, t, below, above) => (Number.isNaN(x) || Number.isNaN(t) ? NaN : x < t ? below : above),
  only_if: (margin, value) => (margin >= 0 ? value : NaN),
  geometric_sum: (a, n) => {
    const e = 1 - a;
    if (Math.abs(e) * Math.max(n, 1) < 1e-3)
      return n * (1 - (n - 1) / 2 * e * (1 - (n - 2) / 3 * e * (1 - (n - 3) / 4 * e)));
    return (1 - Math.pow(a, n)) / e;
  },
  complement_power: (p, n) => {
    if (Number.isNaN(p) || Number.isNaN(n)) return NaN;
    return n === 0 ? 1 : p === 1 ? 0 : Math.exp(n * Math.log1p(-p));
  },
  erlang_b: (servers, load) => {
    if (Number.isNaN(servers) || Number.isNaN(load)) return NaN;
    let b = 1;
    for (let k = 1; k <= pm.floor(servers); k++) b = load * b / (k + load * b);
    return b;
  },
  annuity: (rate, years) => (rate === 0 ? 1 / years : rate / -Math.expm1(-years * Math.log1p(rate))),
};
"""


def number(value: float) -> str:
    """Return a constant."""
    return "NaN" if value != value else repr(value)


_SHARED = ("floor", "ceil_div", "switch_at", "only_if", "geometric_sum", "complement_power", "erlang_b", "annuity")

LANGUAGE = Language(
    functions={
        "exp": lambda x: f"Math.exp({x})",
        "log": lambda x: f"Math.log({x})",
        "sqrt": lambda x: f"Math.sqrt({x})",
        "maximum": lambda a, b: f"Math.max({a}, {b})",
        "minimum": lambda a, b: f"Math.min({a}, {b})",
        "interpolate": lambda x, knots: f"pm.interpolate({x}, {json.dumps(knots)})",
        **{name: (lambda *args, name=name: f"pm.{name}({', '.join(args)})") for name in _SHARED},
    },
    power=lambda base, exponent: f"Math.pow({base}, {exponent})",
    number=number,
    negative="-{}",
)


def function(ledger: Ledger, results: Mapping[str, Any], name: str = "predict") -> str:
    """Return a JavaScript function from inputs by path to results by name."""
    names: dict[Any, str] = {}

    def leaf(node: Node) -> str | None:
        if node.kind == "input":
            return f"x[{json.dumps(node.label)}]"
        if node.line is not None:
            return names[id(node.line)]
        return names.get(id(node))

    body, shown = [], []
    for count, step in enumerate(steps(ledger, results)):
        text = LANGUAGE.write(step.expression, leaf)
        if isinstance(step.node, str):
            shown.append(f"{json.dumps(step.name)}: {text}")
        else:
            names[id(step.node)] = f"v{count}"
            body.append(f"  const v{count} = {text}; // {step.name}")
    return f"function {name}(x) {{\n" + "\n".join(body) + f"\n  return {{{', '.join(shown)}}};\n}}\n"
