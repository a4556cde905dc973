// The page around the engine: fields, charts, pins, the link.
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function element(tag, attributes = {}, ...children) {
  const made = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const PREFIXES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "u"], [1e-9, "n"]];

/** A quantity with a fitting prefix. */
function show(value, unit) {
  if (value === undefined || Number.isNaN(value)) return "-";
  if (["1", "1/s", "USD", "mm2"].includes(unit) || value === 0) {
    const digits = Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(4)));
    return unit === "1" || unit === "" ? digits : `${digits} ${unit}`;
  }
  const [factor, prefix] = PREFIXES.find(([least]) => Math.abs(value) >= least) ?? [1e-9, "n"];
  return `${Number((value / factor).toPrecision(4))} ${prefix}${unit}`;
}

// --- state ----------------------------------------------------------------------------------------------------

let state = structuredClone(DATA.start);
let pins = {A: null, B: null};
const KEYS = {system: "s", model: "m", traffic: "t"};

function pack(one) {
  const words = new URLSearchParams();
  for (const [name, key] of Object.entries(KEYS)) words.set(key, one[name]);
  for (const [path, value] of Object.entries(one.set)) words.set(path, String(value));
  return words;
}

function unpack(words) {
  const one = structuredClone(DATA.start);
  one.set = {};
  for (const [key, value] of words) {
    const name = Object.keys(KEYS).find((each) => KEYS[each] === key);
    if (name !== undefined) {
      const table = {system: DATA.systems, model: DATA.models, traffic: DATA.traffics}[name];
      if (Object.hasOwn(table, value)) one[name] = value;
    } else if (engine.place.has(key) && value.trim() !== "" && Number.isFinite(Number(value))) one.set[key] = Number(value);
  }
  return one;
}

function link() {
  const words = pack(state);
  for (const [name, pin] of Object.entries(pins)) if (pin !== null) words.set(`pin${name}`, pack(pin).toString());
  return words.toString();
}

function read() {
  const words = new URLSearchParams(location.hash.slice(1));
  if (![...words].length) return;
  for (const name of Object.keys(pins)) {
    const packed = words.get(`pin${name}`);
    pins[name] = packed === null ? null : unpack(new URLSearchParams(packed));
    words.delete(`pin${name}`);
  }
  state = unpack(words);
}

let waiting = 0;
function remember() {
  clearTimeout(waiting);
  waiting = setTimeout(() => { if (`#${link()}` !== location.hash) history.replaceState(null, "", `#${link()}`); }, 150);
}

// --- fields ---------------------------------------------------------------------------------------------------

const KEY_INPUTS = ["traffic.prompt", "traffic.output", "traffic.concurrency", "deployment.tp", "deployment.pp",
  "deployment.dp", "deployment.ep", "deployment.attention_dp"];
const TITLES = {"traffic.prompt": "Prompt tokens", "traffic.output": "Output tokens", "traffic.concurrency": "Requests at once",
  "deployment.tp": "TP", "deployment.pp": "PP", "deployment.dp": "DP", "deployment.ep": "EP",
  "deployment.attention_dp": "Attention DP"};
const GROUPS = {traffic: "Traffic", deployment: "Layout", system: "System", model: "Model", economics: "Economics",
  speculation: "Speculative decoding"};
let fields = new Map();

function range(path, value) {
  const rule = DATA.rules[path];
  const span = infoOf(path).span;
  let low = span ? span[0] : value / 16, high = span ? span[1] : value * 16;
  if (path === "traffic.prompt" || path === "traffic.output") [low, high] = [1, 131072];
  if (path === "traffic.concurrency") [low, high] = [1, 4096];
  if (path.startsWith("deployment.")) [low, high] = [1, Math.max(64, value)];
  low = Math.max(low, rule.least);
  high = Math.min(high, rule.most);
  return low < high ? [low, high] : [low, Math.min(low + 1, rule.most)];
}

function toSlider(path, value, first) {
  const [low, high] = range(path, first);
  if (!(low > 0)) return 1000 * (value - low) / (high - low);
  return 1000 * Math.log(value / low) / Math.log(high / low);
}

function fromSlider(path, at, first) {
  const [low, high] = range(path, first);
  const value = low > 0 ? low * Math.pow(high / low, at / 1000) : low + (high - low) * at / 1000;
  const rule = DATA.rules[path];
  const whole = rule.whole || KEY_INPUTS.includes(path);
  return whole ? Math.max(1, Math.round(value)) : Number(value.toPrecision(6));
}

function infoOf(path) {
  const root = path.split(".")[0];
  const found = root === "system" ? DATA.systems[state.system].info[path] : root === "model" ? DATA.models[state.model].info[path]
    : DATA.info[path];
  return found ?? {said: "", span: null};
}

/** A value as it is typed: in the unit beside the field, without the last digits of the conversion. */
function typed(path, value) {
  return String(Number((value / DATA.human[path][1]).toPrecision(14)));
}

function field(path) {
  const name = TITLES[path] ?? path, id = `in-${engine.place.get(path)}`;
  const first = engine.given(state)[engine.place.get(path)];
  const number = element("input", {type: "number", id, step: "any", inputmode: "decimal"});
  const slider = element("input", {type: "range", min: 0, max: 1000, step: 1, "aria-label": `${name}, slider`});
  const reset = element("button", {type: "button", class: "small", "aria-label": `Reset ${name}`}, "reset");
  const [label, factor] = DATA.human[path], unit = label === "1" ? "" : label;
  const said = element("span", {class: "said", id: `${id}-said`});
  const row = element("div", {class: "field"},
    element("label", {for: id}, name, unit ? element("span", {class: "unit"}, ` ${unit}`) : ""), number, slider, reset, said);
  number.setAttribute("aria-describedby", `${id}-said`);
  const set = (value) => {
    if (value === null) delete state.set[path]; else state.set[path] = value;
    redraw();
  };
  number.addEventListener("input", () => {
    if (number.value.trim() === "") return;
    set(Number(number.value) * factor);
  });
  slider.addEventListener("input", () => set(fromSlider(path, Number(slider.value), first)));
  reset.addEventListener("click", () => set(null));
  fields.set(path, {number, slider, reset, said, row, first});
  return row;
}

function build() {
  fields = new Map();
  $("system").value = state.system;
  $("model").value = state.model;
  $("traffic").value = state.traffic;
  $("key").replaceChildren();
  $("all").replaceChildren();
  const pair = engine.pairOf(state);
  if (pair === undefined) return;
  const read = DATA.programs[pair.program].reads.map((at) => DATA.paths[at]);
  const used = new Set([...read, ...pair.filled.filter((leaf) => leaf.p !== undefined).map((leaf) => DATA.paths[leaf.p]), ...KEY_INPUTS]);
  for (const path of KEY_INPUTS) {
    if (!engine.place.has(path) || (["deployment.ep", "deployment.attention_dp"].includes(path) && pair.ep.length < 2)) continue;
    $("key").append(field(path));
  }
  for (const [root, title] of Object.entries(GROUPS)) {
    const mine = DATA.paths.filter((path) => path.split(".")[0] === root && used.has(path) && !fields.has(path)
      && !KEY_INPUTS.includes(path));
    if (!mine.length) continue;
    const group = element("details", {"data-root": root}, element("summary", {}, `${title} (${mine.length})`), ...mine.map(field));
    $("all").append(group);
  }
  filter();
}

function filter() {
  const wanted = $("filter").value.trim().toLowerCase();
  for (const group of $("all").querySelectorAll("details")) {
    let shown = 0;
    for (const row of group.querySelectorAll(".field")) {
      row.hidden = wanted !== "" && !row.querySelector("label").textContent.toLowerCase().includes(wanted);
      shown += row.hidden ? 0 : 1;
    }
    group.hidden = shown === 0;
    if (wanted !== "") group.open = true;
  }
}

function refresh(x) {
  for (const [path, one] of fields) {
    const value = x[engine.place.get(path)], changed = Object.hasOwn(state.set, path);
    if (document.activeElement !== one.number) one.number.value = Number.isNaN(value) ? "" : typed(path, value);
    const first = Number.isNaN(one.first) ? value : one.first;
    one.slider.disabled = Number.isNaN(first);
    if (!Number.isNaN(first) && document.activeElement !== one.slider) one.slider.value = String(Math.max(0, Math.min(1000, toSlider(path, value, first))));
    one.slider.setAttribute("aria-valuetext", `${typed(path, value)} ${DATA.human[path][0]}`);
    one.reset.hidden = !changed;
    const why = changed ? engine.wrong(path, value) : "";
    one.number.toggleAttribute("aria-invalid", why !== "");
    one.said.textContent = why || (Number.isNaN(value) ? "not published: type a value" : "") || (changed ? "changed" : infoOf(path).said);
    one.row.classList.toggle("changed", changed);
  }
}

// --- results --------------------------------------------------------------------------------------------------

const SHOWN = [["ttft_s", "TTFT", "s"], ["ttft_median_s", "TTFT, median", "s"], ["tpot_s", "TPOT", "s"],
  ["request_latency_s", "Request latency", "s"], ["output_tokens_per_s_per_user", "Output tok/s/user", "1"],
  ["output_tokens_per_s", "Output tok/s", "1"], ["input_tokens_per_s", "Input tok/s", "1"],
  ["tokens_per_s_per_chip", "In+out tok/s/chip", "1"], ["max_concurrency", "Requests that fit", "1"], ["chips", "Chips", "1"],
  ["mfu", "MFU", "%"], ["mbu", "MBU", "%"], ["power_w", "Power", "W"], ["joules_per_output_token", "Energy per output token", "J"],
  ["usd_per_mtok_input", "USD per Mtok in", "1"], ["usd_per_mtok_output", "USD per Mtok out", "1"],
  ["usd_per_mtok_blended", "USD per Mtok, both", "1"], ["speculation_tokens_per_step", "Tokens a step", "1"],
  ["memory_weights_bytes", "Weights a chip", "B"], ["memory_kv_room_bytes", "KV room a chip", "B"]];
const CAUSES = DATA.causes;

function cases() {
  const found = [["now", state, engine.answer(state)]];
  for (const [name, pin] of Object.entries(pins)) if (pin !== null) found.push([name, pin, engine.answer(pin)]);
  return found;
}

const percent = (value) => (Number.isNaN(value) || value === undefined ? "-" : `${Number((100 * value).toPrecision(3))} %`);

function table(all) {
  const head = element("tr", {}, element("th", {scope: "col"}, "result"),
    ...all.map(([name, one]) => element("th", {scope: "col"}, element("i", {class: `dot ${name}`}), name === "now" ? "now" : `pin ${name}`,
      element("span", {class: "said"}, `${one.model} on ${one.system}`))));
  const rows = SHOWN.filter(([key]) => all.some(([, , {found}]) => found[key] !== undefined)).map(([key, title, unit]) =>
    element("tr", {}, element("th", {scope: "row"}, title),
      ...all.map(([, , {found}]) => element("td", {"data-key": key}, unit === "%" ? percent(found[key]) : show(found[key], unit)))));
  $("results").replaceChildren(element("caption", {}, "Results"), element("thead", {}, head), element("tbody", {}, ...rows));
}

/** One unit of a chart is one pixel, so that its text is as large as that around it. */
function widthOf(holder) {
  return Math.max(300, Math.min(900, holder.clientWidth || 640));
}

function bars(all) {
  const width = widthOf($("bars")), line = 30, left = 72, found = [];
  for (const [phase, title] of [["prefill", "TTFT"], ["decode", "TPOT"]]) {
    const totals = all.map(([, , {found: r}]) => CAUSES.reduce((sum, cause) => sum + (r[`${phase}_${cause}_s`] ?? NaN), 0));
    const most = Math.max(...totals.filter(Number.isFinite), 0);
    const svg = element("svg:svg", {viewBox: `0 0 ${width} ${line * all.length + 6}`, role: "img"});
    const words = [];
    all.forEach(([name, , {found: r}], at) => {
      const label = element("svg:text", {x: 0, y: at * line + 20, class: "axis"}, `${title} ${name === "now" ? "" : name}`);
      svg.append(label);
      if (!Number.isFinite(totals[at]) || most === 0) return;
      let from = left;
      for (const cause of CAUSES) {
        const value = r[`${phase}_${cause}_s`], long = (width - left - 84) * value / most;
        if (long > 0.3) svg.append(element("svg:rect", {x: from, y: at * line + 5, width: long, height: 20, class: `cause ${cause}`},
          element("svg:title", {}, `${cause} ${show(value, "s")}`)));
        from += Math.max(0, long);
      }
      svg.append(element("svg:text", {x: from + 6, y: at * line + 20, class: "axis"}, show(totals[at], "s")));
      const parts = CAUSES.filter((cause) => r[`${phase}_${cause}_s`] > 0.005 * totals[at])
        .map((cause) => `${cause} ${show(r[`${phase}_${cause}_s`], "s")}`);
      words.push(`${title} ${name}: ${show(totals[at], "s")}, of which ${parts.join(", ")}`);
    });
    svg.setAttribute("aria-label", words.join("; ") || `${title}: no answer`);
    found.push(svg);
  }
  $("bars").replaceChildren(...found);
}

/** A chart of lines over logarithmic axes. */
function plot(holder, {lines, points = [], xTitle, yTitle, label, xTicks}) {
  const [w, h, l, b, t, r] = [widthOf(holder), 330, 74, 46, 12, 16];
  const all = [...lines.flatMap((line) => line.at), ...points.map((point) => point.at)].filter(([x, y]) => x > 0 && y > 0);
  const svg = element("svg:svg", {viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": label});
  holder.replaceChildren(svg);
  if (!all.length) { svg.append(element("svg:text", {x: l, y: h / 2, class: "axis"}, "no answer")); return; }
  const logs = (at) => all.map((point) => Math.log10(point[at]));
  const pad = (low, high) => (high - low < 0.3 ? [low - 0.15, high + 0.15] : [low - 0.04 * (high - low), high + 0.04 * (high - low)]);
  const [x0, x1] = pad(Math.min(...logs(0)), Math.max(...logs(0))), [y0, y1] = pad(Math.min(...logs(1)), Math.max(...logs(1)));
  const X = (x) => l + (w - l - r) * (Math.log10(x) - x0) / (x1 - x0), Y = (y) => h - b - (h - b - t) * (Math.log10(y) - y0) / (y1 - y0);
  const ticks = (low, high) => {
    const steps = high - low > 4 ? [1] : high - low > 1.2 ? [1, 3] : [1, 2, 3, 5, 7];
    const found = [];
    for (let e = Math.floor(low); e <= Math.ceil(high); e++) for (const step of steps) {
      const value = step * Math.pow(10, e);
      if (Math.log10(value) >= low && Math.log10(value) <= high) found.push(value);
    }
    return found;
  };
  for (const y of ticks(y0, y1)) svg.append(
    element("svg:line", {x1: l, x2: w - r, y1: Y(y), y2: Y(y), class: "grid"}),
    element("svg:text", {x: l - 8, y: Y(y) + 4, class: "axis", "text-anchor": "end"}, short(y)));
  for (const x of (xTicks?.filter((_, at) => w > 480 || at % 2) ?? ticks(x0, x1)).filter((value) => Math.log10(value) >= x0 && Math.log10(value) <= x1)) svg.append(
    element("svg:line", {x1: X(x), x2: X(x), y1: t, y2: h - b, class: "grid"}),
    element("svg:text", {x: X(x), y: h - b + 18, class: "axis", "text-anchor": "middle"}, short(x)));
  svg.append(element("svg:text", {x: (l + w - r) / 2, y: h - 8, class: "axis", "text-anchor": "middle"}, xTitle),
    element("svg:text", {x: 14, y: (t + h - b) / 2, class: "axis", "text-anchor": "middle", transform: `rotate(-90 14 ${(t + h - b) / 2})`}, yTitle));
  for (const line of lines) {
    const path = line.at.filter(([x, y]) => x > 0 && y > 0).map(([x, y], at) => `${at ? "L" : "M"}${X(x).toFixed(1)} ${Y(y).toFixed(1)}`).join("");
    if (path) svg.append(element("svg:path", {d: path, class: `line ${line.kind}`}));
  }
  for (const {at: [x, y], kind, words} of points) if (x > 0 && y > 0) svg.append(
    element("svg:circle", {cx: X(x), cy: Y(y), r: 5, class: `point ${kind}`}, element("svg:title", {}, words)));
}

function short(value) {
  if (value >= 1e3) { const [factor, prefix] = PREFIXES.find(([least]) => value >= least); return `${Number((value / factor).toPrecision(3))}${prefix}`; }
  return String(Number(value.toPrecision(3)));
}

function operating(found) {
  const rate = found.mfu * found.roofline_peak, moved = found.mbu * found.roofline_bandwidth;
  return [rate / moved, rate];
}

function roofline(all) {
  const lines = [], points = [], words = [];
  for (const [name, one, {found}] of all) {
    if (!(found.roofline_peak > 0) || !(found.roofline_bandwidth > 0)) continue;
    const ridge = found.roofline_peak / found.roofline_bandwidth;
    lines.push({kind: name, at: [[ridge / 300, found.roofline_peak / 300], [ridge, found.roofline_peak], [ridge * 30, found.roofline_peak]]});
    const trail = RATIOS.map((ratio) => operating(engine.answer(withRatio(one, ratio)).found));
    lines.push({kind: `${name} dashed`, at: trail});
    const at = operating(found);
    if (at[1] > 0) {
      points.push({at, kind: name, words: `${name}: ${show(at[0], "1")} FLOP/B, ${show(at[1], "FLOP/s")} a chip`});
      words.push(`${name}: ${show(at[0], "1")} FLOP per byte, ${show(at[1], "FLOP/s")} a chip; ridge at ${show(ridge, "1")}`);
    }
  }
  plot($("roofline"), {lines, points, xTitle: "operational intensity, FLOP/B", yTitle: "FLOP/s a chip",
    label: `Roofline. ${words.join("; ") || "no answer"}`});
}

const RATIOS = [1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16, 32, 64];
function withRatio(one, ratio) {
  const x = engine.inputs(one), whole = x[engine.place.get("traffic.prompt")] + x[engine.place.get("traffic.output")];
  return {...one, set: {...one.set, "traffic.prompt": whole * ratio / (1 + ratio), "traffic.output": whole / (1 + ratio)}};
}

function ratios(all) {
  const key = $("ratio-metric").value, title = $("ratio-metric").selectedOptions[0].textContent;
  const words = [];
  const lines = all.map(([name, one]) => {
    const at = RATIOS.map((ratio) => [ratio, engine.answer(withRatio(one, ratio)).found[key] ?? NaN]);
    words.push(`${name}: ${at.map(([x, y]) => `${x} gives ${show(y, "1")}`).join(", ")}`);
    return {kind: name, at};
  });
  const points = lines.flatMap(({kind, at}) => at.map(([x, y]) => ({at: [x, y], kind, words: `P:D ${x}: ${show(y, "1")}`})));
  plot($("ratios"), {lines, points, xTitle: "P:D at the same P + D", yTitle: title, xTicks: RATIOS, label: `${title} by P:D. ${words.join("; ")}`});
}

function estimates({x, pair, found}) {
  if (pair === undefined || !(found.tpot_s > 0)) { $("estimates").replaceChildren(); return; }
  const moved = [];
  for (const [path] of fields) {
    const {span} = infoOf(path);
    if (!span || Object.hasOwn(state.set, path)) continue;
    const ends = span.map((end) => engine.answer({...state, set: {...state.set, [path]: end}}).found);
    const change = (key) => ends.map((end) => end[key] / found[key] - 1);
    const [tpot, ttft] = [change("tpot_s"), change("ttft_s")];
    const most = Math.max(...[...tpot, ...ttft].map((one) => (Number.isNaN(one) ? 9 : Math.abs(one))));
    if (most >= 0.01) moved.push([most, path, tpot, ttft]);
  }
  moved.sort((one, other) => other[0] - one[0]);
  const text = ([low, high]) => `${signed(low)} to ${signed(high)}`;
  if (!moved.length) {
    $("estimates").replaceChildren(element("li", {}, "none of them moves TPOT or TTFT by 1 %"));
    return;
  }
  $("estimates").replaceChildren(...moved.slice(0, 8).map(([, path, tpot, ttft]) =>
    element("li", {}, `${path}: TPOT ${text(tpot)}, TTFT ${text(ttft)}`)));
}

function signed(share) {
  if (Number.isNaN(share)) return "no answer";
  return `${share >= 0 ? "+" : "\u2212"}${Math.abs(100 * share).toFixed(0)} %`;
}

let drawing = 0;
function redraw() {
  cancelAnimationFrame(drawing);
  drawing = requestAnimationFrame(draw);
}

let slow = 0;
function draw() {
  const all = cases(), [, , now] = all[0];
  if (now.x !== undefined) refresh(now.x);
  table(all);
  bars(all);
  roofline(all);
  ratios(all);
  $("reason").textContent = now.reason ? `No answer: ${now.reason}.` : "";
  $("command").value = now.pair === undefined ? "" : engine.command(state);
  for (const name of Object.keys(pins)) $(`unpin-${name}`).hidden = pins[name] === null;
  remember();
  clearTimeout(slow);
  slow = setTimeout(() => {
    estimates(now);
    $("live").textContent = now.reason || `TTFT ${show(now.found.ttft_s, "s")}, TPOT ${show(now.found.tpot_s, "s")}`;
    const notes = [...engine.idle(state), ...(now.pair?.notes ?? []).map((at) => DATA.notes[at])];
    $("notes").replaceChildren(...notes.map((words) => element("li", {}, words)));
  }, 250);
}

// --- actions --------------------------------------------------------------------------------------------------

function options(id, table, groups) {
  const held = new Map();
  for (const [name, one] of Object.entries(table)) {
    const text = one.title && one.title !== name ? `${name}: ${one.title}` : name;
    const option = element("option", {value: name}, text);
    if (!groups) { $(id).append(option); continue; }
    if (!held.has(one.kind)) { held.set(one.kind, element("optgroup", {label: one.kind})); $(id).append(held.get(one.kind)); }
    held.get(one.kind).append(option);
  }
}

function choose(name, value) {
  state[name] = value;
  const kept = name === "traffic" ? /^(?!traffic\.(?!concurrency))/ : /^(traffic\.|economics\.)/;
  state.set = Object.fromEntries(Object.entries(state.set).filter(([path]) => kept.test(path)));
  build();
  redraw();
}

async function copy(text, done) {
  try { await navigator.clipboard.writeText(text); } catch {
    $("command").value = text;
    $("command").select();
    document.execCommand("copy");
  }
  $("done").textContent = done;
}

function safe(text) {
  const cell = /^\s*[=+\-@＝＋－＠]|^[\t\r\n]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}

function csv() {
  const all = cases(), names = [...new Set(all.flatMap(([, , {found}]) => Object.keys(found)))];
  const read = [...new Set(all.flatMap(([, , {pair}]) => (pair === undefined ? [] : DATA.programs[pair.program].reads)))];
  const rows = [["scenario", "model", "system", ...names, ...read.map((at) => DATA.paths[at]), "reason"]];
  for (const [name, one, {found, x, reason}] of all) {
    const number = (value) => (value === undefined || Number.isNaN(value) ? "" : String(value));
    rows.push([name, one.model, one.system, ...names.map((key) => number(found[key])), ...read.map((at) => number(x?.[at])), reason]);
  }
  return rows.map((row) => row.map((cell, at) => (/^-?[\d.]+(e[+-]?\d+)?$/.test(cell) && at > 2 ? cell : safe(cell))).join(",")).join("\r\n") + "\r\n";
}

function download() {
  const url = URL.createObjectURL(new Blob([csv()], {type: "text/csv"}));
  element("a", {href: url, download: "perfmodel-whatif.csv"}).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
  $("done").textContent = "CSV saved";
}

options("system", DATA.systems, true);
options("model", DATA.models, false);
options("traffic", DATA.traffics, false);
for (const name of ["system", "model", "traffic"]) $(name).addEventListener("change", () => choose(name, $(name).value));
$("filter").addEventListener("input", filter);
$("ratio-metric").addEventListener("change", redraw);
for (const name of Object.keys(pins)) {
  $(`pin-${name}`).addEventListener("click", () => { pins[name] = structuredClone(state); redraw(); });
  $(`unpin-${name}`).addEventListener("click", () => { pins[name] = null; redraw(); });
}
$("reset").addEventListener("click", () => { state.set = {}; build(); redraw(); });
$("copy").addEventListener("click", () => copy($("command").value, "Command copied"));
$("copy-link").addEventListener("click", () => copy(`${location.href.split("#")[0]}#${link()}`, "Link copied"));
$("csv").addEventListener("click", download);
window.addEventListener("resize", redraw);
window.addEventListener("hashchange", () => { if (`#${link()}` !== location.hash) { read(); build(); redraw(); } });
window.perfmodel = {engine, csv, link, state: () => state, draw};
read();
build();
draw();
