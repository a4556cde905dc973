"""A numbered program as C: one function over a grid, in which an operation lies in a loop over just its own axes.

A step whose axes are the first ones of the grid and some more is worked out inside the loops over those first axes, in
a loop of its own over the others, and kept in a table over the others alone.  What only fixed inputs decide comes
before all loops.  On one axis that is one fused loop over points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfmodel.tape.numbered import CONSTANT, INPUT, Numbered, Step

#: The operations in C, on numbers (``pm_``) and on vectors of them (``vm_``), which choose by bits and never branch.
#: A C library that has functions of vectors gives those; else they go number by number.
PRELUDE = """\
#include <math.h>
#include <string.h>
#if defined(__AVX512F__)
#define W 8
#elif defined(__AVX__)
#define W 4
#else
#define W 2
#endif
#define PAD 8
typedef double V __attribute__((vector_size(8 * W)));
typedef long long I __attribute__((vector_size(8 * W)));
#define INLINE static inline __attribute__((always_inline))
INLINE V all(double x) { return x - (V){0}; }
INLINE V load(const double *at) { V x; memcpy(&x, at, sizeof x); return x; }
INLINE void store(double *at, V x) { memcpy(at, &x, sizeof x); }
INLINE V pick(I when, V a, V b) { return (V)((when & (I)a) | (~when & (I)b)); }
#define EACH(NAME) INLINE V vm_##NAME(V x) { for (int k = 0; k < W; k++) x[k] = NAME(x[k]); return x; }
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && W >= 4
#if W == 8
#define LIBRARY(NAME, KIND) _ZGVeN8##KIND##_##NAME
#elif defined(__AVX2__)
#define LIBRARY(NAME, KIND) _ZGVdN4##KIND##_##NAME
#else
#define LIBRARY(NAME, KIND) _ZGVcN4##KIND##_##NAME
#endif
V LIBRARY(exp, v)(V);
V LIBRARY(log, v)(V);
V LIBRARY(pow, vv)(V, V);
INLINE V vm_exp(V x) { return LIBRARY(exp, v)(x); }
INLINE V vm_log(V x) { return LIBRARY(log, v)(x); }
INLINE V vm_pow(V x, V y) { return LIBRARY(pow, vv)(x, y); }
#else
EACH(exp)
EACH(log)
INLINE V vm_pow(V x, V y) { for (int k = 0; k < W; k++) x[k] = pow(x[k], y[k]); return x; }
#endif
EACH(sqrt)
INLINE V vm_absolute(V x) { return (V)((I)x & 0x7fffffffffffffffLL); }
INLINE V vm_maximum(V a, V b) { return pick(a != a, a, pick(a >= b, a, b)); }
INLINE V vm_minimum(V a, V b) { return pick(a != a, a, pick(a <= b, a, b)); }
INLINE V vm_whole(V x) {
  V turn = all(0x1p52), size = vm_absolute(x), near = (size + turn) - turn;
  V whole = pick(x < 0.0, -near, near);
  whole -= pick(whole > x, all(1.0), all(0.0));
  return pick(size < turn, whole, x);
}
INLINE V vm_floor(V x) { return vm_whole(x + vm_minimum(all(0.5), 1e-9 * vm_maximum(all(1.0), vm_absolute(x)))); }
INLINE V vm_ceil_div(V a, V b) { return -vm_floor(-(a / b)); }
INLINE V vm_only_if(V margin, V value) { return pick(margin >= 0.0, value, all(NAN)); }
INLINE V vm_switch_at(V x, V t, V below, V above) {
  return pick((x != x) | (t != t), all(NAN), pick(x < t, below, above));
}
INLINE V vm_geometric_sum(V a, V n) {
  V e = 1.0 - a;
  V series = n * (1.0 - (n - 1.0) / 2.0 * e * (1.0 - (n - 2.0) / 3.0 * e * (1.0 - (n - 3.0) / 4.0 * e)));
  V closed = (1.0 - vm_pow(a, n)) / pick(e == 0.0, all(1.0), e);
  return pick(n != n, n, pick(vm_absolute(e) * vm_maximum(n, all(1.0)) < 1e-3, series, closed));
}
INLINE V vm_log1p(V x) {
  /* log(1 + x), times what rounding 1 + x left out of x. */
  V u = 1.0 + x, d = u - 1.0;
  return pick(d == 0.0, x, vm_log(u) * (x / d));
}
INLINE V vm_complement_power(V p, V n) {
  return pick((n == 0.0) & (p == 1.0), all(1.0), vm_exp(n * vm_log1p(-p)));
}
static double pm_erlang_b(double servers, double load);
INLINE V vm_erlang_b(V servers, V load) {
  for (int k = 0; k < W; k++) load[k] = pm_erlang_b(servers[k], load[k]);
  return load;
}
INLINE double pm_annuity(double rate, double years) {
  return rate == 0.0 ? 1.0 / years : rate / -expm1(-years * log1p(rate));
}
INLINE V vm_annuity(V rate, V years) {
  for (int k = 0; k < W; k++) rate[k] = pm_annuity(rate[k], years[k]);
  return rate;
}
INLINE V vm_interpolate(V x, const double *knots, int count) {
  V y = all(knots[1]);
  for (int i = 0; i + 1 < count; i++) {
    double x0 = knots[2 * i], y0 = knots[2 * i + 1], x1 = knots[2 * i + 2], y1 = knots[2 * i + 3];
    y = pick(x >= x0, (y1 - y0) / (x1 - x0) * (x - x0) + y0, y);
    y = pick(x >= x1, all(y1), y);
  }
  return pick(x != x, x, y);
}
#define pm_exp exp
#define pm_log log
#define pm_sqrt sqrt
#define pm_pow pow
INLINE double pm_maximum(double a, double b) { return a >= b || a != a ? a : b; }
INLINE double pm_minimum(double a, double b) { return a <= b || a != a ? a : b; }
INLINE double pm_floor(double x) { return floor(x + pm_minimum(0.5, 1e-9 * pm_maximum(1.0, fabs(x)))); }
INLINE double pm_ceil_div(double a, double b) { return -pm_floor(-(a / b)); }
INLINE double pm_only_if(double margin, double value) { return margin >= 0.0 ? value : NAN; }
INLINE double pm_switch_at(double x, double t, double below, double above) {
  return x != x || t != t ? NAN : x < t ? below : above;
}
INLINE double pm_geometric_sum(double a, double n) {
  double e = 1.0 - a;
  if (n != n) return n;
  if (fabs(e) * pm_maximum(n, 1.0) < 1e-3)
    return n * (1.0 - (n - 1.0) / 2.0 * e * (1.0 - (n - 2.0) / 3.0 * e * (1.0 - (n - 3.0) / 4.0 * e)));
  return (1.0 - pow(a, n)) / (e == 0.0 ? 1.0 : e);
}
INLINE double pm_complement_power(double p, double n) {
  return n == 0.0 && p == 1.0 ? 1.0 : exp(n * log1p(-p));
}
static double pm_erlang_b(double servers, double load) {
  double b = 1.0, last = pm_floor(servers);
  if (servers != servers || load != load) return NAN;
  for (double k = 1.0; k <= last; k += 1.0) b = load * b / (k + load * b);
  return b;
}
INLINE double pm_interpolate(double x, const double *knots, int count) {
  return vm_interpolate(all(x), knots, count)[0];
}
"""

#: Numbers of room behind each array, past which no vector goes.
PAD = 8
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def _number(value: float) -> str:
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    return f"({float(value).hex()})"


@dataclass(frozen=True)
class Source:
    """A program as C.

    Attributes
    ----------
    text : str
        Of one function ``run(n, fixed, axes, out, scratch)``: lengths of the axes, fixed inputs, arrays of inputs that
        vary, arrays of results (row-major over the axes of each), room for
        tables; each array and table with room for :data:`PAD` numbers more behind it.
    fixed, varying : tuple of str
        Paths of the inputs in the order of the arguments.
    results : dict of str to tuple of int
        For each result, in order, the axes that it depends on.
    tables : tuple of tuple of int
        For each table the axes it lies over.
    """

    text: str
    fixed: tuple[str, ...]
    varying: tuple[str, ...]
    results: Mapping[str, tuple[int, ...]]
    tables: tuple[tuple[int, ...], ...]


def source(program: Numbered, axes: Mapping[str, int]) -> Source:
    """Return a program as C over a grid.

    Parameters
    ----------
    program : Numbered
    axes : mapping of str to int
        The axis of each input that varies, by path, from 0; the others are fixed.

    Returns
    -------
    Source
    """
    return _Writer(program, axes).write()


class _Writer:
    def __init__(self, program: Numbered, axes: Mapping[str, int]) -> None:
        self.program = program
        self.rank = 1 + max(axes.values(), default=-1)
        self.varying = tuple(path for path in program.inputs if path in axes)
        self.fixed = tuple(path for path in program.inputs if path not in axes)
        masks = program.dependence(axes)
        #: Axes of each step, in order; the loops around it, as many of the first axes as it has; the axes of its table.
        self.axes = [tuple(at for at in range(self.rank) if mask >> at & 1) for mask in masks]
        self.depth = [next((at for at, one in enumerate(own) if one != at), len(own)) for own in self.axes]
        self.rest = [own[depth:] for own, depth in zip(self.axes, self.depth, strict=True)]
        self.tables: dict[int, int] = {}
        self.lines: list[str] = []
        #: The axis along which the loop that is written now goes by vectors.
        self.vector: int | None = None
        #: The steps that each loop works out: of the same first axes and the same others.
        self.loops: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        for at in range(len(program.steps)):
            self.loops.setdefault((self.depth[at], self.rest[at]), []).append(at)
        self._needed_in_tables()

    def _needed_in_tables(self) -> None:
        """Number the tables: of steps that lie in a loop of their own and are read outside of it."""
        for at, step in enumerate(self.program.steps):
            for arg in step.args:
                own = self.rest[arg]
                if own and (self.depth[arg], own) != (self.depth[at], self.rest[at]):
                    self.tables.setdefault(arg, len(self.tables))

    def write(self) -> Source:
        steps = self.program.steps
        body = [
            "void run(const long *n, const double *fixed, const double *const *axes, double *const *out, "
            "double *scratch) {"
        ]
        self.lines = body
        for at in range(self.rank):
            body.append(f"  const long n{at} = n[{at}];")
        for number in range(len(self.varying)):
            body.append(f"  const double *restrict x{number} = axes[{number}];")
        for number in range(len(self.program.results)):
            body.append(f"  double *restrict o{number} = out[{number}];")
        for arg, number in self.tables.items():
            size = " * ".join(f"n{axis}" for axis in self.rest[arg])
            body.append(f"  double *restrict t{number} = scratch; scratch += {size} + PAD;")
        self._level(0)
        body.append("}")
        knots = [
            f"static const double k{at}[] = {{{', '.join(_number(part) for knot in step.value for part in knot)}}};"
            for at, step in enumerate(steps)
            if step.kind == "interpolate"
        ]
        return Source(
            "\n".join([PRELUDE, *knots, *body, ""]),
            self.fixed,
            self.varying,
            {name: self.axes[at] for name, at in self.program.results.items()},
            tuple(self.rest[arg] for arg in self.tables),
        )

    def _level(self, depth: int) -> None:
        """Write what lies inside the loops over the first axes, so many of them."""
        indent = "  " * (depth + 1)
        for rest in sorted((rest for level, rest in self.loops if level == depth), key=len):
            self._loop(self.loops[depth, rest], depth, rest)
        deepest = max(level for level, _ in self.loops)
        if depth < deepest:
            # Inside the last loop nothing has a loop of its own, so that it may go by vectors.
            last = depth + 1 == deepest and (deepest, ()) in self.loops and self._only(deepest)
            self.lines.append(indent + _head(depth, last))
            self.vector = depth if last else None
            self._level(depth + 1)
            self.vector = None
            self.lines.append(f"{indent}}}")

    def _only(self, depth: int) -> bool:
        return all(not rest for level, rest in self.loops if level == depth)

    def _loop(self, steps: Sequence[int], depth: int, rest: tuple[int, ...]) -> None:
        """Write some steps in a loop over the rest of their axes."""
        level = depth + 1
        for axis in rest:
            self.vector = axis if axis == rest[-1] else None
            self.lines.append("  " * level + _head(axis, axis == rest[-1]))
            level += 1
        indent = "  " * level
        inside = set(steps)
        for at in steps:
            step = self.program.steps[at]
            if step.kind != CONSTANT:
                kind = "double" if self.vector is None else "V"
                self.lines.append(f"{indent}const {kind} v{at} = {self._expression(at, step, inside)};")
            if at in self.tables:
                self.lines.append(indent + self._store(f"t{self.tables[at]}", rest, at, inside))
        for number, at in enumerate(self.program.results.values()):
            if at in inside:
                self.lines.append(indent + self._store(f"o{number}", self.axes[at], at, inside))
        for _ in rest:
            level -= 1
            self.lines.append("  " * level + "}")
        if rest:
            self.vector = None

    def _store(self, name: str, axes: Sequence[int], at: int, inside: set[int]) -> str:
        if self.vector is None:
            return f"{name}[{_place(axes)}] = {self._operand(at, inside)};"
        return f"store({name} + {_place(axes)}, {self._operand(at, inside)});"

    def _operand(self, arg: int, inside: set[int]) -> str:
        step = self.program.steps[arg]
        if step.kind == CONSTANT:
            return _number(step.value)
        if arg in self.tables and arg not in inside:
            return self._read(f"t{self.tables[arg]}", self.rest[arg])
        return f"v{arg}"

    def _read(self, name: str, axes: Sequence[int]) -> str:
        return f"load({name} + {_place(axes)})" if self.vector in axes else f"{name}[{_place(axes)}]"

    def _expression(self, at: int, step: Step, inside: set[int]) -> str:
        if step.kind == INPUT:
            if step.value in self.varying:
                return self._read(f"x{self.varying.index(step.value)}", self.axes[at])
            return f"fixed[{self.fixed.index(step.value)}]"
        args = [self._operand(arg, inside) for arg in step.args]
        if step.kind in _SIGNS:
            return f"{args[0]} {_SIGNS[step.kind]} {args[1]}"
        if step.kind == "neg":
            return f"-{args[0]}"
        if self.vector is not None:
            args = [
                text if self.vector in self.axes[arg] else f"all({text})"
                for text, arg in zip(args, step.args, strict=True)
            ]
        if step.kind == "interpolate":
            args += [f"k{at}", str(len(step.value))]
        return f"{'pm' if self.vector is None else 'vm'}_{step.kind}({', '.join(args)})"


def _head(axis: int, vector: bool) -> str:
    """Return the head of a loop; one by vectors goes past the end of a row, which the next row writes over."""
    return f"for (long i{axis} = 0; i{axis} < n{axis}; i{axis} {'+= W' if vector else '+= 1'}) {{"


def _place(axes: Sequence[int]) -> str:
    """Return where a point lies in an array over some axes, row by row."""
    text = ""
    for axis in axes:
        text = f"({text}) * n{axis} + i{axis}" if text else f"i{axis}"
    return text or "0"
