"use strict";
const NARROW = 500;
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

/* A spec as it is embedded, for a holder of a width: panels beside each other where there is room, names at the ends of
   lines where there is, else a legend; on a phone the title of the y axis stands above it. */
function fitted(holder, width) {
  const spec = JSON.parse(document.getElementById(holder.dataset.spec).textContent);
  const narrow = width < NARROW;
  const labels = (spec.layer || []).some((layer) => layer.name === "labels");
  const named = labels && !narrow;
  if (narrow && labels) spec.layer = spec.layer.filter((layer) => layer.name !== "labels");
  if (named) for (const {encoding} of spec.layer) {
    for (const channel of ["color", "strokeDash", "shape"]) if (encoding[channel]) encoding[channel].legend = null;
  }
  spec.autosize = {type: "fit-x", contains: "padding"};
  spec.padding = {left: 2, top: 6, bottom: 2, right: 6};
  spec.width = width;
  if (spec.facet) {
    spec.columns = Math.max(1, Math.min(spec.columns, Math.floor(width / 270)));
    spec.spec.width = Math.max(60, Math.floor(width / spec.columns) - 72);
    spec.spec.height = Math.min(spec.spec.height, Math.max(180, spec.spec.width));
    delete spec.autosize;
    delete spec.width;
  }
  if (narrow) {
    spec.config.legend = {...spec.config.legend, columns: 1, labelLimit: width - 60};
    if (!spec.facet) spec.config.axisY = {titleAngle: 0, titleAlign: "left", titleAnchor: "end", titleX: -30, titleY: -8,
      titleLimit: width - 20, titleBaseline: "bottom"};
    wrapNames(spec, width);
  }
  return spec;
}

/* Names on a y axis, in lines of few letters, since they take the room of the plot. */
function wrapNames(spec, width) {
  const letters = Math.max(8, Math.floor(width / 30));
  for (const layer of spec.layer || spec.spec.layer) {
    const y = layer.encoding && layer.encoding.y;
    if (!y || y.type !== "nominal") continue;
    const pattern = `regexp('(.{1,${letters}})(\\\\s+|$)','g')`;
    y.axis = {...y.axis, labelLimit: Math.round((spec.facet ? 0.17 : 0.24) * width), labelFontSize: 11, title: null,
      labelExpr: `split(trim(replace(datum.label, ${pattern}, '$1 \\n')), ' \\n')`};
  }
}

let printing = false;

function draw(holder) {
  if (printing) return Promise.resolve();
  const width = Math.floor(holder.clientWidth || document.querySelector("main").clientWidth - 40);
  if (holder.dataset.width === String(width)) return Promise.resolve();
  holder.dataset.width = width;
  const inner = document.createElement("div");
  holder.replaceChildren(inner);
  return vegaEmbed(inner, fitted(holder, width),
    {renderer: "svg", actions: false, loader: {load: () => Promise.reject("offline")}})
    .then(() => hide(holder))
    .catch((error) => { holder.textContent = "This chart could not be drawn: " + error; });
}

/* The holder is an image with words of its own, which Vega's would stand beside. */
function hide(holder) { holder.firstChild.setAttribute("aria-hidden", "true"); }

/* Before the page is printed there is no time to wait. */
function drawNow(holder, width) {
  const {vega, vegaLite} = vegaEmbed;
  holder.dataset.width = "print";
  const parsed = vega.parse(vegaLite.compile(fitted(holder, width)).spec);
  const inner = document.createElement("div");
  holder.replaceChildren(inner);
  new vega.View(parsed, {renderer: "svg"}).initialize(inner).run();
  hide(holder);
}

function stack(within, width) {
  for (const wrap of all(".wide", within)) {
    const table = wrap.querySelector("table");
    wrap.style.width = width ? width + "px" : "";
    table.classList.remove("stacked");
    table.classList.toggle("stacked", table.scrollWidth > wrap.clientWidth + 1);
    wrap.style.width = "";
    if (table.classList.contains("stacked") && !table.dataset.named) name(table);
  }
}

function name(table) {
  const heads = all("thead th", table).map((cell) => cell.textContent);
  for (const row of all("tbody tr", table)) [...row.cells].forEach((cell, at) => { cell.dataset.head = heads[at]; });
  table.dataset.named = "yes";
}

const visible = (element) => !element.closest("details:not([open])");

function show(within = document) {
  all(".chart", within).filter(visible).forEach(draw);
  stack(within);
}

function rowsOf(id) {
  const spec = JSON.parse(document.getElementById(id).textContent);
  const columns = spec.usermeta.columns;
  const names = Object.keys(columns);
  return [names.map((name) => columns[name]), ...spec.data.values.map((row) => names.map((name) => row[name]))];
}

const plain = (value) => value === null || value === undefined ? ""
  : typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value);

/* The numbers of a chart as a table, made when somebody asks for it. */
function tabulate(holder) {
  if (holder.querySelector("table")) return;
  const [heads, ...rows] = rowsOf(holder.closest("figure").querySelector(".chart").dataset.spec);
  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  for (const text of heads) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = text;
    head.append(cell);
  }
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const value of row) {
      const cell = line.insertCell();
      cell.textContent = plain(value);
      if (typeof value === "number") cell.className = "n";
    }
  }
  const wrap = document.createElement("div");
  wrap.className = "wide";
  wrap.tabIndex = 0;
  wrap.append(table);
  holder.append(wrap);
  stack(holder);
}

/* Open what a link points at, and what it lies in. */
function reveal() {
  const hash = decodeURIComponent(location.hash.slice(1));
  if (hash === "all") openAll();
  const target = hash && document.getElementById(hash);
  if (!target) return;
  for (let at = target; at; at = at.parentElement) if (at.matches("details.fold")) at.open = true;
  target.scrollIntoView();
}

function openAll() { all("details.fold").forEach((fold) => { fold.open = true; }); }

function filter(verdict) {
  for (const row of all("tr[data-verdict]")) row.hidden = verdict !== "all" && row.dataset.verdict !== verdict;
  for (const button of all(".verdicts button")) {
    button.setAttribute("aria-pressed", String(button.dataset.verdict === verdict));
  }
  location.hash = "claims";
}

document.addEventListener("toggle", (event) => {
  const {target} = event;
  if (target.open && target.matches("details.fold")) show(target);
  if (target.open && target.matches("details.numbers")) tabulate(target);
}, true);
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button && button.dataset.verdict) filter(button.dataset.verdict);
  if (button && button.dataset.open) openAll();
  const link = event.target.closest("a[href^='#']");
  if (link && link.hash === location.hash) reveal();
  const menu = document.querySelector("nav.contents > details");
  if (link && menu && innerWidth < 1088) menu.open = false;
});
window.addEventListener("hashchange", reveal);
/* Charts in closed parts are drawn when nothing else is to do, one by one: a printer does not wait for them. */
const whenIdle = window.requestIdleCallback || ((work) => setTimeout(work, 50));
function drawRest() {
  const next = all(".chart").find((holder) => !holder.dataset.width);
  if (next) draw(next).then(() => whenIdle(drawRest));
}
window.addEventListener("load", () => whenIdle(drawRest));
window.addEventListener("beforeprint", () => {
  printing = true;
  openAll();
  all(".chart").filter((holder) => !holder.dataset.width).forEach((holder) => drawNow(holder, 660));
  stack(document, 660);
});
window.addEventListener("afterprint", () => {
  printing = false;
  show();
});
let waiting = 0;
window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(show, 150); });
if (innerWidth < 1088) all("nav.contents > details").forEach((menu) => { menu.open = false; });
show();
reveal();
