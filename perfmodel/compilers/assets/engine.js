// Answers of the traced equations: no page is needed here, so that tests can run it alone.
const engine = (() => {
  const place = new Map(DATA.paths.map((path, at) => [path, at]));
  const own = (table, name) => (Object.hasOwn(table, name) ? table[name] : undefined);

  function fill(x, part) {
    part.at.forEach((at, i) => { x[at] = part.value[i] === null ? NaN : part.value[i]; });
  }

  function pairOf(state) {
    const row = own(DATA.pairs, state.system);
    return row === undefined ? undefined : own(row, state.model);
  }

  /** Inputs as they stand before anything is changed. */
  function given(state) {
    const pair = pairOf(state);
    const x = new Float64Array(DATA.paths.length).fill(NaN);
    for (const part of [DATA.common, own(DATA.systems, state.system).inputs, own(DATA.models, state.model).inputs,
      pair.inputs, (own(DATA.traffics, state.traffic) ?? DATA.traffics[DATA.start.traffic]).inputs]) fill(x, part);
    return x;
  }

  function inputs(state) {
    const x = given(state);
    for (const [path, value] of Object.entries(state.set)) if (place.has(path)) x[place.get(path)] = value;
    return x;
  }

  /** Why an input cannot have a value, or nothing. */
  function wrong(path, value) {
    const rule = own(DATA.rules, path);
    if (!Number.isFinite(value)) return "must be a number";
    const low = rule.above ? value > rule.least : value >= rule.least, high = rule.below ? value < rule.most : value <= rule.most;
    return low && high && (!rule.whole || value === Math.round(value)) ? "" : `must be ${rule.said}`;
  }

  /** Why a layout cannot run, or nothing. */
  function refused(pair, x, found) {
    const degree = (name) => x[place.get(`deployment.${name}`)];
    const [tp, pp, dp, ep, shared] = ["tp", "pp", "dp", "ep", "attention_dp"].map(degree);
    if (!pair.tp.includes(tp)) return `TP ${tp} is not among ${pair.tp.join(", ")}`;
    if (dp !== Math.round(dp) || dp < 1) return "DP must be a whole number of at least 1";
    if (shared !== Math.round(shared) || shared < 1) return "Attention DP must be a whole number of at least 1";
    if (!pair.ep.includes(ep) || (ep !== 1 && (tp * shared) % ep))
      return `EP ${ep} does not divide TP x attention DP or the experts`;
    if (shared > 1 && ep <= tp) return "Ranks of attention DP share experts: EP must be more than TP";
    const most = found.stages_layers + found.stages_ends;
    if (pp !== Math.round(pp) || pp < 1 || pp <= found.stages_ends || pp > most)
      return `PP must lie between ${found.stages_ends + 1} and ${most}`;
    return "";
  }

  /** Results by name; NaN where there is none, and the reason beside. */
  function answer(state) {
    const pair = pairOf(state);
    if (pair === undefined) return {found: {}, reason: "this model cannot be laid out on this system"};
    const x = inputs(state);
    for (const [path, value] of Object.entries(state.set)) {
      const why = place.has(path) ? wrong(path, value) : "no such input";
      if (why) return {x, pair, found: {}, reason: `${path} ${why}`};
    }
    const values = PROGRAMS[pair.program](x, pair.filled.map((leaf) => (leaf.p === undefined ? leaf.v : x[leaf.p])));
    const found = {};
    DATA.programs[pair.program].results.forEach((name, i) => { found[name] = values[i]; });
    let reason = refused(pair, x, found);
    if (reason) {
      for (const name of Object.keys(found)) found[name] = NaN;
    } else if (Number.isNaN(found.tpot_s)) {
      reason = found.max_concurrency < 1 ? "does not fit" : "needs a number that is not published";
    }
    return {x, pair, found, reason};
  }

  /** A value with its unit, in that which people use where this loses nothing. */
  function written(path, value) {
    const [label, factor] = DATA.human[path], short = Number((value / factor).toPrecision(14));
    if (label === "1") return String(value);
    return short * factor === value ? `${short} ${label}` : `${value} ${DATA.units[path]}`;
  }

  /** A line for each input that was changed and moved nothing. */
  function idle(state) {
    const now = answer(state);
    if (now.reason) return [];
    const base = given(state), read = new Set(DATA.programs[now.pair.program].reads);
    for (const leaf of now.pair.filled) if (leaf.p !== undefined) read.add(leaf.p);
    const lines = [];
    for (const path of Object.keys(state.set)) {
      const at = place.get(path);
      if (Object.is(base[at], now.x[at])) continue;
      const {[path]: _, ...others} = state.set;
      const before = answer({...state, set: others}).found;
      if (!Object.keys(now.found).every((name) => Object.is(now.found[name], before[name]))) continue;
      lines.push(read.has(at) ? `${path} moved nothing in this answer: something else decides` : `${path} did not enter this answer`);
    }
    return lines;
  }

  /** The command line that gives the same numbers. */
  function command(state) {
    const pair = pairOf(state), x = inputs(state), base = given(state);
    const number = (path) => String(x[place.get(path)]);
    const words = ["perfmodel", "predict", state.model, "--on", state.system, "--engine", pair.engine,
      "--precision", pair.precision, "--kv-precision", pair.kv];
    for (const name of ["tp", "pp", "ep", "dp", "attention_dp"])
      words.push(`--${name.replace("_", "-")}`, number(`deployment.${name}`));
    for (const name of ["prompt", "output", "concurrency"]) words.push(`--${name}`, number(`traffic.${name}`));
    words.push(...DATA.words);
    const plain = new Float64Array(DATA.paths.length).fill(NaN);
    fill(plain, DATA.plain);
    DATA.paths.forEach((path, at) => {
      if (/^(deployment\.|traffic\.(prompt|output|concurrency)$)/.test(path)) return;
      const asked = path.startsWith("traffic.") ? plain[at] : base[at];
      if (!Object.is(x[at], asked)) words.push("--set", `${path}=${written(path, x[at])}`);
    });
    return words.map((word) => (/^[\w.,:=+@%\/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
  }

  return {place, pairOf, given, inputs, wrong, answer, idle, command};
})();
